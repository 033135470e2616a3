// What pieces compute, by the reference interpreter on random inputs: equal before and after a
// pass.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

// What each slot holds after the run.
struct SlotValue {
  DType dtype = DType::kVoid;
  std::vector<uint8_t> bytes;
};
using Outputs = std::map<std::string, SlotValue>;  // by "slot3"

// Runs one tensor graph, or programs one after another on what their bindings name. The inputs
// depend on `seed`, the slot and its type alone. nullopt: the pieces are kernels, which no
// interpreter runs.
absl::StatusOr<std::optional<Outputs>> EvaluatePieces(const std::vector<Piece>& pieces,
                                                      uint64_t seed, Budget* budget);

// The first element that differs, in words; empty if none does. Floats may differ by `tolerance`
// times the larger magnitude, or 1 if that is smaller; every NaN is the same.
std::string FirstDifference(const Outputs& before, const Outputs& after, double tolerance);

}  // namespace telegrad
