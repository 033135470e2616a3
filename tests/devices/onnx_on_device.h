// Cases of the ONNX project's backend tests on a device, or a part of them: those of
// tests/data/onnx_nodes, or of the folder that TELEGRAD_ONNX_CASES names.
#pragma once

#include <cstdlib>

#include "tests/devices/device_graph_runner.h"
#include "tests/devices/part.h"
#include "tests/onnx/case.h"

namespace telegrad::testing {

inline void ExpectOnnxCasesAgree(DeviceGraphRunner& runner, Part part) {
  const char* folder = std::getenv("TELEGRAD_ONNX_CASES");
  const auto cases = FindOnnxCases(folder == nullptr ? ONNX_CASES : folder);
  ASSERT_TRUE(cases.ok()) << cases.status();
  for (const OnnxCase& item : *cases) {
    if (!part.TakesNext()) continue;
    const absl::Status status =
        RunOnnxCase(item, [&](UOp sink, Slots* slots) { return runner.Run(sink, {}, slots); });
    EXPECT_EQ(status, absl::OkStatus()) << item.name;
  }
  EXPECT_GT(part.taken(), 0);
  ::testing::Test::RecordProperty("cases", part.taken());
}

}  // namespace telegrad::testing
