// ONNX's cases on the fake HIP library, for waves of 64 and of 32: every 4th on each, and others on
// either; TELEGRAD_HIP_EVERY=1 takes all.
#include "tests/devices/hip_fixture.h"
#include "tests/devices/onnx_on_device.h"

namespace telegrad {
namespace {

class OnnxOnHip : public ::testing::TestWithParam<int> {};

TEST_P(OnnxOnHip, Agree) {
  FakeHip fake;
  auto device = OpenFakeHip(fake, GetParam());
  ASSERT_NE(device, nullptr);
  DeviceGraphRunner runner(std::move(device), {CompileInProcess(), nullptr, {}});
  testing::ExpectOnnxCasesAgree(runner, {"TELEGRAD_HIP_EVERY", 4, GetParam() == 0x942 ? 0 : 2});
  EXPECT_GT(fake.Count("launches"), 0);
  EXPECT_EQ(fake.Problems(), "");
}

INSTANTIATE_TEST_SUITE_P(Processors, OnnxOnHip, ::testing::Values(0x942, 0x1100),
                         [](const auto& info) {
                           return info.param == 0x942 ? "gfx942" : "gfx1100";
                         });

}  // namespace
}  // namespace telegrad
