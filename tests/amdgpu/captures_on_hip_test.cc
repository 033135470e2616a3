// The captured graphs on the fake HIP library, for waves of 64 and of 32: every 12th on each, and
// others on either; TELEGRAD_HIP_EVERY=1 takes all.
#include "tests/devices/captures_on_device.h"
#include "tests/devices/hip_fixture.h"

namespace telegrad {
namespace {

class CapturesOnHip : public ::testing::TestWithParam<int> {};

TEST_P(CapturesOnHip, Agree) {
  FakeHip fake;
  auto device = OpenFakeHip(fake, GetParam());
  ASSERT_NE(device, nullptr);
  DeviceGraphRunner runner(std::move(device), {CompileInProcess(), nullptr, {}});
  testing::ExpectCapturesAgree(runner, {"TELEGRAD_HIP_EVERY", 12, GetParam() == 0x942 ? 0 : 6});
  EXPECT_EQ(fake.Problems(), "");
  // Of all code objects that were loaded.
  EXPECT_GT(fake.Count("modules_loaded"), 0);
  EXPECT_EQ(fake.Count("vgpr_spills"), 0);
  EXPECT_EQ(fake.Count("private_bytes"), 0);
  for (const char* counter : {"modules_loaded", "sgpr_spills"}) {
    RecordProperty(counter, std::to_string(fake.Count(counter)));
    std::printf("%s: %lld\n", counter, static_cast<long long>(fake.Count(counter)));
  }
}

INSTANTIATE_TEST_SUITE_P(Processors, CapturesOnHip, ::testing::Values(0x942, 0x1100),
                         [](const auto& info) {
                           return info.param == 0x942 ? "gfx942" : "gfx1100";
                         });

}  // namespace
}  // namespace telegrad
