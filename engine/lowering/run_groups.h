// How many of a program's workgroups a run has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/ir/program.h"

namespace telegrad {

// Where numbers that the run gives end the outermost range of workgroups: how many workgroups there
// are, from the first on. The others do nothing, so a launch may leave them out. The root is an
// integer, computed from LOADs of arguments at constants. nullopt for every other program.
std::optional<FrozenGraph> RunGroups(const Program& program);

// The slots of the arguments that `number`, made by RunGroups, loads from.
std::vector<int32_t> ArgumentsOf(const FrozenGraph& number);
// Its value where each of its LOADs at a constant i gives numbers[i]; nullopt where there is no
// such number, or where some step leaves its type.
std::optional<int64_t> ValueOf(const FrozenGraph& number, std::span<const int64_t> numbers);

}  // namespace telegrad
