// Networks on the fake HIP library, for waves of 64 and of 32, against the CPU: pieces in every
// run, and whole where TELEGRAD_HIP_EVERY is 1.
#include <set>
#include <tuple>

#include "tests/devices/hip_fixture.h"
#include "tests/devices/networks_on_device.h"

namespace telegrad {
namespace {

class NetworksOnHip : public ::testing::TestWithParam<std::tuple<int, size_t>> {
 protected:
  void SetUp() override {
    if (!testing::IsToRun(network(), "TELEGRAD_HIP_EVERY")) {
      GTEST_SKIP() << "whole networks run with TELEGRAD_HIP_EVERY=1";
    }
  }
  static int processor() { return std::get<0>(GetParam()); }
  static const testing::Network& network() { return testing::kNetworks[std::get<1>(GetParam())]; }
};

TEST_P(NetworksOnHip, Agree) {
  FakeHip fake;
  testing::ExpectAgrees(network(), OpenFakeHip(fake, processor(), /*gib=*/6));
  EXPECT_GT(fake.Count("launches"), 0);
  EXPECT_EQ(fake.Problems(), "");
}

// A kernel is one module, however many launches and executables have it; so an executable that is
// built again, or another that shares kernels, loads none.
TEST_P(NetworksOnHip, LoadAModuleForEachKernel) {
  const auto plan = network().plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  FakeHip fake;
  const auto device = OpenFakeHip(fake, processor(), /*gib=*/6);
  ASSERT_NE(device, nullptr);
  ExecutableCache cache(ExecutableCache::Limits{}, {CompileInProcess(), nullptr, {}});
  const UOp sink = plan->graph.root();
  Budget budget;
  const auto built = cache.Get(ContentHash(sink), Freeze(sink), *device, &budget, {});
  ASSERT_TRUE(built.ok()) << built.status();
  std::set<std::string> kernels;
  for (const KernelInfo& kernel : built->executable->kernels()) kernels.insert(kernel.name);
  EXPECT_EQ(fake.Count("modules_loaded"), static_cast<int64_t>(kernels.size()));
  EXPECT_EQ(fake.Count("live_modules"), static_cast<int64_t>(kernels.size()));
  RecordProperty(network().name,
                 StrCat(built->executable->num_launches(), " launches, ", kernels.size(),
                        " modules, ", device->memory_used(), " bytes"));
}

INSTANTIATE_TEST_SUITE_P(
    Processors, NetworksOnHip,
    ::testing::Combine(::testing::Values(0x942, 0x1100),
                       ::testing::Range<size_t>(0, std::size(testing::kNetworks))),
    [](const auto& info) {
      return StrCat(std::get<0>(info.param) == 0x942 ? "gfx942_" : "gfx1100_",
                    testing::kNetworks[std::get<1>(info.param)].name);
    });

}  // namespace
}  // namespace telegrad
