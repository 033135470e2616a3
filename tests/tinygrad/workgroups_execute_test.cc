// The captured graphs, lowered for GPUs and interpreted.
#include <gtest/gtest.h>

#include "engine/wire/graph_codec.h"
#include "tests/conformance/run_lowered.h"
#include "tests/tinygrad/for_each_capture.h"

namespace telegrad {
namespace {

TEST(WorkgroupsExecute, CapturedGraphsAgree) {
  const Target target = *NvidiaTarget(8, 0, 108, 163840);
  testing::ForEachCapture([&](const testing::Capture& capture, const FrozenGraph& graph,
                              std::span<const VarValue> variables) {
    testing::Slots slots = capture.SlotsBefore();
    const absl::Status status = testing::RunLowered(graph.root(), target, variables, &slots);
    EXPECT_EQ("", status.ok() ? testing::Difference(capture, graph.root(), slots, /*slack=*/4)
                              : status.ToString())
        << capture.name;
  });
}

}  // namespace
}  // namespace telegrad
