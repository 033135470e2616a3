// Programs for GPUs, ready to render, with inputs: those of tests/programs, and every elementwise
// op on every element type.
#pragma once

#include <cstdint>
#include <map>
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
  // How many codes the results of an argument may be apart from others' within the bounds of
  // ops.def: of EXP2, where the target approximates it. Others: 0.
  std::map<size_t, int64_t> codes = {};
  double tolerance = 0;  // of 1 + |result|, where it is computed from such
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

// EXP2 of f32, of edge values, of all exponents and of where the results are not trivial.
PtxKernel Exp2Kernel(const Target& target, uint64_t seed);
// The result that is more than 2 ulp from the true value, or is no NaN, infinity, 1 or 0 where
// ops.md has one; empty where all are right.
std::string Exp2Difference(const PtxKernel& kernel, const std::vector<std::vector<uint8_t>>& got);

// The first element of the arguments that differs by more than it may; empty where none does. Every
// NaN is as good as another.
std::string Difference(const PtxKernel& kernel, const std::vector<std::vector<uint8_t>>& got,
                       const std::vector<std::vector<uint8_t>>& want);

absl::StatusOr<ProgramImage> CompileKernel(const Program& program, const Target& target);

}  // namespace telegrad::testing
