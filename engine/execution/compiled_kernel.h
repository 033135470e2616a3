// A kernel as lowered and compiled, before a device has loaded it: everything that a launch needs,
// as a plain value that can be stored on disk.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "devices/api/device.h"
#include "engine/ir/program.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/lowering/run_groups.h"

namespace telegrad {

struct CompiledKernel {
  ProgramImage image;
  std::vector<Program::Argument> arguments;
  std::vector<Program::Packing> packings;
  int64_t iterations = 1;
  double flops = 0;
  double bytes = 0;
  std::optional<FrozenGraph> groups;  // see RunGroups
  BoundsStats bounds;
  std::string moves;  // that lowering carried out
};

std::string Encode(const CompiledKernel& kernel);
// nullopt for bytes that Encode did not make.
std::optional<CompiledKernel> DecodeCompiledKernel(std::string_view bytes);

}  // namespace telegrad
