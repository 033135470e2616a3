// Networks on the fake CUDA driver, as compute capability 8.0 and 9.0, against the CPU: pieces in
// every run, and whole where TELEGRAD_CUDA_EVERY is 1.
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/networks_on_device.h"

namespace telegrad {
namespace {

class NetworksOnCuda : public ::testing::TestWithParam<int> {};

TEST_P(NetworksOnCuda, Agree) {
  for (const testing::Network& network : testing::NetworksToRun("TELEGRAD_CUDA_EVERY")) {
    SCOPED_TRACE(network.name);
    FakeCuda fake;
    testing::ExpectAgrees(network, OpenFakeCuda(fake, GetParam(), /*gib=*/6));
    EXPECT_GT(fake.Count("launches"), 0);
    EXPECT_EQ(fake.Problems(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Capabilities, NetworksOnCuda, ::testing::Values(80, 90),
                         [](const auto& info) { return StrCat("sm_", info.param); });

}  // namespace
}  // namespace telegrad
