// All captured graphs, lowered for a target and interpreted.
#pragma once

#include <span>

#include "gtest/gtest.h"
#include "tests/conformance/run_lowered.h"
#include "tests/tinygrad/for_each_capture.h"

namespace telegrad::testing {

// Expects of each what its capture says.
inline void ExpectLoweredCapturesAgree(const Target& target) {
  ForEachCapture(
      [&](const Capture& capture, const FrozenGraph& graph, std::span<const VarValue> variables) {
        Slots slots = capture.SlotsBefore();
        const absl::Status status = RunLowered(graph.root(), target, variables, &slots);
        EXPECT_EQ("", status.ok() ? Difference(capture, graph.root(), slots, /*slack=*/4)
                                  : status.ToString())
            << capture.name;
      });
}

}  // namespace telegrad::testing
