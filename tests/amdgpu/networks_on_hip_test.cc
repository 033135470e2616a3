// Networks on the fake HIP library, for waves of 64 and of 32, against the CPU: pieces in every
// run, and whole where TELEGRAD_HIP_EVERY is 1.
#include <set>

#include "tests/devices/hip_fixture.h"
#include "tests/devices/networks_on_device.h"

namespace telegrad {
namespace {

class NetworksOnHip : public ::testing::TestWithParam<int> {};

TEST_P(NetworksOnHip, Agree) {
  for (const testing::Network& network : testing::NetworksToRun("TELEGRAD_HIP_EVERY")) {
    SCOPED_TRACE(network.name);
    FakeHip fake;
    testing::ExpectAgrees(network, OpenFakeHip(fake, GetParam(), /*gib=*/6));
    EXPECT_GT(fake.Count("launches"), 0);
    EXPECT_EQ(fake.Problems(), "");
  }
}

// A kernel is one module, however many launches and executables have it; so an executable that is
// built again, or another that shares kernels, loads none.
TEST_P(NetworksOnHip, LoadAModuleForEachKernel) {
  for (const testing::Network& network : testing::NetworksToRun("TELEGRAD_HIP_EVERY")) {
    SCOPED_TRACE(network.name);
    const auto plan = network.plan();
    ASSERT_TRUE(plan.ok()) << plan.status();
    FakeHip fake;
    const auto device = OpenFakeHip(fake, GetParam(), /*gib=*/6);
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
    RecordProperty(network.name,
                   StrCat(built->executable->num_launches(), " launches, ", kernels.size(),
                          " modules, ", device->memory_used(), " bytes"));
  }
}

INSTANTIATE_TEST_SUITE_P(Processors, NetworksOnHip, ::testing::Values(0x942, 0x1100),
                         [](const auto& info) {
                           return info.param == 0x942 ? "gfx942" : "gfx1100";
                         });

}  // namespace
}  // namespace telegrad
