// Small random graphs of what networks seldom have: indices out of range, empty tensors, sizes that
// no vector, warp or tile divides, narrow and wide element types, windows with dilation and groups,
// attentions with heads of odd sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/plan.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad::testing {

struct UnusualGraph {
  Plan plan;
  Slots slots;  // what they hold before the run
};

// Kinds of graphs, each with a way to make one of a seed: "gather", "sort", ...
std::span<const std::string_view> UnusualKinds();
// Of the kind with that number: the same for the same seed.
absl::StatusOr<UnusualGraph> MakeUnusualGraph(size_t kind, uint64_t seed);

// How outputs differ, or "": integers exactly, floats by more than some roundings of their type to
// the largest of the tensor's numbers that are finite.
std::string UnusualDifference(const Plan& plan, const Slots& want, const Slots& got);

}  // namespace telegrad::testing
