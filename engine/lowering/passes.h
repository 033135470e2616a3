// The passes of lowering, in their order: from a scheduled kernel to a proved program.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

std::span<const PassRow> LoweringPasses();

// What the passes count: accesses that were proved inside their buffers, and the others.
inline constexpr std::string_view kAccessesProved = "accesses proved";
inline constexpr std::string_view kAccessesGated = "accesses gated";

// What the PARAM slots of a kernel are bound to.
std::vector<Program::Argument> KernelArguments(UOp kernel);

}  // namespace telegrad
