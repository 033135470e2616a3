// Runs random graphs in a way that the caller gives, and compares the results with those of the
// interpreter of tensor graphs.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "engine/types/var_value.h"
#include "tests/conformance/random_graph.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad::testing {

using Way = std::function<absl::Status(UOp sink, std::span<const VarValue>, Slots*)>;

// The graph of a seed; an invalid sink where it came out malformed.
RandomGraph GraphOfSeed(uint64_t seed, Graph* graph);

absl::Status Judge(const RandomGraph& random, Slots* slots);

// How a way of running a graph differs from the judge, or "".
std::string Compare(const RandomGraph& random, const Way& way);

// Of TELEGRAD_CASES graphs, `cases` without it, from seed TELEGRAD_SEED or 1 on: the first for
// which the way and the judge differ in whether there is a result, or in the result, made small; or
// "".
std::string CompareMany(const Way& way, uint64_t cases);

}  // namespace telegrad::testing
