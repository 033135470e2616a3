// Programs for GPUs, ready to render, with inputs: those of tests/programs, and every elementwise
// op on every element type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/ir/program.h"
#include "engine/types/target.h"

namespace telegrad::testing {

struct PtxKernel {
  Program program;
  std::vector<std::vector<uint8_t>> arguments;
  std::vector<std::string> names;  // what each argument is, for messages
};

// The targets with their names: an A100 and an H100.
Target Ampere();
Target Hopper();

// One of tests/programs with its problem's inputs. Its variables are bound to the problem's values,
// and functions are decomposed, as execution and lowering do for kernels.
PtxKernel ProgramKernel(std::string_view name, const Target& target);

// Those that kernels have.
std::vector<DType> ElementTypes();

// All elementwise ops that take `dtype`, as lowering leaves them for the target, on columns of edge
// values and random ones: each op is an argument of its own. Threads have `lanes` elements each.
PtxKernel ElementwiseKernel(DType dtype, int64_t lanes, const Target& target, uint64_t seed);

// The first element of the arguments that differs; empty where none does. Every NaN is as good as
// another.
std::string Difference(const PtxKernel& kernel, const std::vector<std::vector<uint8_t>>& got,
                       const std::vector<std::vector<uint8_t>>& want);

absl::StatusOr<ProgramImage> CompileKernel(const Program& program, const Target& target);

}  // namespace telegrad::testing
