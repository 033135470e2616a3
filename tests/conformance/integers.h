// Graphs whose results are the same bits in any order of their sums.
#pragma once

#include <cstring>
#include <string>

#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "tests/conformance/compare.h"

namespace telegrad::testing {

// The plan with small integers in its slots, whose sums are exact in any order.
inline RandomGraph WithIntegers(const Plan& plan) {
  RandomGraph out;
  out.sink = plan.graph.root();
  for (const Slot& slot : plan.slots) {
    const auto size = static_cast<size_t>(ByteSize(slot.dtype));
    const int64_t n = NumElements(slot.shape);
    std::vector<uint8_t>& bytes = out.slots.emplace_back(static_cast<size_t>(n) * size);
    for (int64_t i = 0; i < n; ++i) {
      const auto value = static_cast<double>((i * 7919 + i / 5) % 9 - 4);
      const int64_t raw = ScalarToMemory(slot.dtype, ScalarFromDouble(slot.dtype, value));
      std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &raw, size);
    }
    out.dtypes.push_back(slot.dtype);
    out.exact.push_back(true);
  }
  return out;
}

// How the programs for the target differ from the evaluator of tensor graphs, or "".
inline std::string DifferenceOn(const RandomGraph& graph, const Target& target) {
  return Compare(graph, [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
    return RunLowered(sink, target, variables, slots);
  });
}

}  // namespace telegrad::testing
