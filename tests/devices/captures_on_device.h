// The captured graphs on a device. Drivers and their fakes are slow, so that a test run takes some
// of them; the environment says which part.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "tests/devices/device_graph_runner.h"
#include "tests/tinygrad/for_each_capture.h"

namespace telegrad::testing {

// Runs every n-th of them, where the environment variable `name` is n, else every `otherwise`-th,
// from the `first` on. What is computed has to agree with the capture, or, where the device is not
// `exact`, to be computed.
inline void ExpectCapturesAgree(DeviceGraphRunner& runner, const char* name, int otherwise,
                                bool exact = true, int first = 0) {
  const char* named = std::getenv(name);
  const int every = std::max(named == nullptr ? otherwise : std::atoi(named), 1);
  int number = 0, ran = 0;
  ForEachCapture(
      [&](const Capture& capture, const FrozenGraph& graph, std::span<const VarValue> variables) {
        if (number++ % every != first % every) return;
        ++ran;
        Slots slots = capture.SlotsBefore();
        const absl::Status status = runner.Run(graph.root(), variables, &slots);
        if (!exact && status.ok()) return;
        EXPECT_EQ("", status.ok() ? Difference(capture, graph.root(), slots, /*slack=*/4)
                                  : status.ToString())
            << capture.name;
      });
  EXPECT_EQ(ran, (number - first % every + every - 1) / every);
  ::testing::Test::RecordProperty("graphs", ran);
}

}  // namespace telegrad::testing
