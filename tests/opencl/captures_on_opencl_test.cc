// The captured graphs on the OpenCL device. Drivers compile slowly, so that a test run takes every
// 25th; TELEGRAD_OPENCL_EVERY=1 takes all.
#include <cstdlib>

#include "tests/opencl/graph_runner.h"
#include "tests/tinygrad/for_each_capture.h"

namespace telegrad {
namespace {

TEST(CapturesOnOpenCl, Agree) {
  SKIP_WITHOUT_OPENCL();
  const char* named = std::getenv("TELEGRAD_OPENCL_EVERY");
  const int every = std::max(named == nullptr ? 25 : std::atoi(named), 1);
  GraphRunner runner;
  int number = 0, ran = 0;
  testing::ForEachCapture([&](const testing::Capture& capture, const FrozenGraph& graph,
                              std::span<const VarValue> variables) {
    if (number++ % every != 0) return;
    ++ran;
    testing::Slots slots = capture.SlotsBefore();
    const absl::Status status = runner.Run(graph.root(), variables, &slots);
    if (OpenClIsInexact() && status.ok()) return;
    EXPECT_EQ("", status.ok() ? testing::Difference(capture, graph.root(), slots, /*slack=*/4)
                              : status.ToString())
        << capture.name;
  });
  EXPECT_EQ(ran, (number + every - 1) / every);
  RecordProperty("graphs", ran);
}

}  // namespace
}  // namespace telegrad
