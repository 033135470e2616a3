// The passes of lowering, in their order: from a scheduled kernel to a proved program.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

std::span<const PassRow> LoweringPasses();

// What the passes count: the fields of BoundsStats.
inline constexpr std::string_view kAccessesProved = "accesses proved";
inline constexpr std::string_view kAccessesGated = "accesses gated";
inline constexpr std::string_view kAccessesByData = "accesses decided by data";

// And those of IndependenceReport: pairs of accesses of which one is a store. A
// program with pairs that are not proved is refused.
inline constexpr std::string_view kPairsProved = "pairs of accesses proved independent";
inline constexpr std::string_view kPairsRepeated = "pairs of stores that repeat elements";
// Of those that repeat elements: the values are not proved to be the same.
inline constexpr std::string_view kPairsDeclared = "pairs of stores that are declared to be equal";
inline constexpr std::string_view kPairsUnproved = "pairs of accesses not proved independent";

// A kernel as the schedule makes it, in a graph of its own that spends the budget.
Piece KernelPiece(const FrozenGraph& kernel, std::string name, std::span<const int32_t> weights,
                  std::span<const int32_t> results, Budget* budget);

// What the PARAM slots of a kernel are bound to.
std::vector<Program::Argument> KernelArguments(UOp kernel);
// Those of these slots that the kernel has.
void MarkWeights(std::span<const int32_t> slots, std::vector<Program::Argument>* arguments);
void MarkResults(std::span<const int32_t> slots, std::vector<Program::Argument>* arguments);

}  // namespace telegrad
