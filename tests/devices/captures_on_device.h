// The captured graphs on a device, or a part of them.
#pragma once

#include "tests/devices/device_graph_runner.h"
#include "tests/devices/part.h"
#include "tests/tinygrad/for_each_capture.h"

namespace telegrad::testing {

// What is computed has to agree with the capture, or, where the device is not `exact`, to be
// computed.
inline void ExpectCapturesAgree(DeviceGraphRunner& runner, Part part, bool exact = true) {
  ForEachCapture(
      [&](const Capture& capture, const FrozenGraph& graph, std::span<const VarValue> variables) {
        if (!part.TakesNext()) return;
        Slots slots = capture.SlotsBefore();
        const absl::Status status = runner.Run(graph.root(), variables, &slots);
        if (!exact && status.ok()) return;
        EXPECT_EQ("", status.ok() ? Difference(capture, graph.root(), slots, /*slack=*/4)
                                  : status.ToString())
            << capture.name;
      });
  EXPECT_GT(part.taken(), 0);
  ::testing::Test::RecordProperty("graphs", part.taken());
}

}  // namespace telegrad::testing
