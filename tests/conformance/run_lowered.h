// Tensor graphs, scheduled and lowered, run by the interpreter of programs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"
#include "engine/schedule/schedule.h"
#include "engine/types/target.h"
#include "engine/types/var_value.h"

namespace telegrad::testing {

// The bytes of each slot, before and after.
using Slots = std::vector<std::vector<uint8_t>>;

// Of a test: what is right does not depend on how fast the machine is.
Budget::Limits WithoutDeadline();

// Those of the graph, with the elements of their PARAMs, which are all zero.
Slots EmptySlots(UOp sink);

// Schedules, lowers for the target, verifies and interprets each program: in two slices, as two
// workers would run them, or, where it is for many threads, at once, so that races are found.
absl::Status RunLowered(UOp sink, const Target& target, std::span<const VarValue> variables,
                        Slots* slots);
// The same, with the moves that are chosen for each kernel.
using ChooseMoves = std::function<absl::StatusOr<std::string>(
    const FrozenGraph& kernel, const Target& target, std::span<const int32_t> weights)>;
absl::Status RunLowered(UOp sink, const Target& target, std::span<const VarValue> variables,
                        Slots* slots, const ChooseMoves& choose);
// The same for what is scheduled already; moves are the heuristic's where `choose` is null. Adds
// the instructions that the programs executed to `steps`, where given.
absl::Status RunSchedule(const Schedule& schedule, const Target& target, Slots* slots,
                         const ChooseMoves& choose = nullptr, int64_t* steps = nullptr);
// The same for a made-up target of that vector width.
absl::Status RunLowered(UOp sink, int vector_bytes, std::span<const VarValue> variables,
                        Slots* slots);

// What differs, or "". Integers exactly, NaN as NaN. Floats exactly where `exact`, else up to the
// reassociation of sums and the few ulp that ops.def allows.
std::string Difference(DType dtype, bool exact, const std::vector<uint8_t>& want,
                       const std::vector<uint8_t>& got);

}  // namespace telegrad::testing
