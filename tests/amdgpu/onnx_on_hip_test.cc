// Cases of the ONNX project's backend tests on the fake HIP library, for waves of 64 and of 32:
// every 4th of tests/data/onnx_nodes on each. TELEGRAD_HIP_EVERY=1 takes all, and
// TELEGRAD_ONNX_CASES names another folder of cases.
#include <algorithm>
#include <cstdlib>

#include "tests/devices/device_graph_runner.h"
#include "tests/devices/hip_fixture.h"
#include "tests/onnx/case.h"

namespace telegrad {
namespace {

class OnnxOnHip : public ::testing::TestWithParam<int> {};

TEST_P(OnnxOnHip, Agree) {
  FakeHip fake;
  auto device = OpenFakeHip(fake, GetParam());
  ASSERT_NE(device, nullptr);
  DeviceGraphRunner runner(std::move(device), {CompileInProcess(), nullptr, {}});
  const char* folder = std::getenv("TELEGRAD_ONNX_CASES");
  const char* named = std::getenv("TELEGRAD_HIP_EVERY");
  const auto every = static_cast<size_t>(std::max(named == nullptr ? 4 : std::atoi(named), 1));
  const auto cases = testing::FindOnnxCases(folder == nullptr ? ONNX_CASES : folder);
  ASSERT_TRUE(cases.ok()) << cases.status();
  // Each processor takes others.
  int ran = 0;
  for (size_t i = (GetParam() == 0x942 ? 0 : every / 2); i < cases->size(); i += every) {
    ++ran;
    const absl::Status status = testing::RunOnnxCase(
        (*cases)[i], [&](UOp sink, testing::Slots* slots) { return runner.Run(sink, {}, slots); });
    EXPECT_EQ(status, absl::OkStatus()) << (*cases)[i].name;
  }
  EXPECT_GT(ran, 0);
  EXPECT_GT(fake.Count("launches"), 0);
  EXPECT_EQ(fake.Problems(), "");
  RecordProperty("cases", ran);
}

INSTANTIATE_TEST_SUITE_P(Processors, OnnxOnHip, ::testing::Values(0x942, 0x1100),
                         [](const auto& info) {
                           return info.param == 0x942 ? "gfx942" : "gfx1100";
                         });

}  // namespace
}  // namespace telegrad
