// Networks on the fake CUDA driver, as compute capability 8.0 and 9.0, against the CPU: pieces in
// every run, and whole where TELEGRAD_CUDA_EVERY is 1, which takes an interpreter of PTX some
// minutes each.
#include <tuple>

#include "tests/devices/cuda_fixture.h"
#include "tests/devices/networks_on_device.h"

namespace telegrad {
namespace {

using testing::kNetworks;

class NetworksOnCuda : public ::testing::TestWithParam<std::tuple<int, size_t>> {};

TEST_P(NetworksOnCuda, Agree) {
  const auto& [capability, number] = GetParam();
  const testing::Network& network = kNetworks[number];
  if (!testing::IsToRun(network, "TELEGRAD_CUDA_EVERY")) {
    GTEST_SKIP() << "whole networks run with TELEGRAD_CUDA_EVERY=1";
  }
  FakeCuda fake;
  fake.Set("budget", int64_t{1} << 50);  // of the largest kernels, too
  testing::ExpectAgrees(network, OpenFakeCuda(fake, capability, /*gib=*/6));
  EXPECT_GT(fake.Count("launches"), 0);
  EXPECT_EQ(fake.Problems(), "");
}

INSTANTIATE_TEST_SUITE_P(Capabilities, NetworksOnCuda,
                         ::testing::Combine(::testing::Values(80, 90),
                                            ::testing::Range<size_t>(0, std::size(kNetworks))),
                         [](const auto& info) {
                           return StrCat("sm_", std::get<0>(info.param), "_",
                                         kNetworks[std::get<1>(info.param)].name);
                         });

}  // namespace
}  // namespace telegrad
