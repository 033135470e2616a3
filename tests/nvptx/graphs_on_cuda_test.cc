// The captured graphs and ONNX's cases on the fake CUDA driver, as compute capability 8.0 and 9.0:
// every 6th graph and every 3rd case on each, and others on either; TELEGRAD_CUDA_EVERY=1 takes
// all.
#include "tests/devices/captures_on_device.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/onnx_on_device.h"

namespace telegrad {
namespace {

class GraphsOnCuda : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto device = OpenFakeCuda(fake_, GetParam());
    ASSERT_NE(device, nullptr);
    runner_ = std::make_unique<DeviceGraphRunner>(std::move(device));
  }
  void ExpectNoProblems() {
    EXPECT_GT(fake_.Count("launches"), 0);
    EXPECT_EQ(fake_.Problems(), "");
  }
  // Where every n-th of them runs, the first one.
  int First(int n) const { return GetParam() == 80 ? 0 : n / 2; }

  FakeCuda fake_;
  std::unique_ptr<DeviceGraphRunner> runner_;
};

TEST_P(GraphsOnCuda, CapturedOnesAgree) {
  testing::ExpectCapturesAgree(*runner_, {"TELEGRAD_CUDA_EVERY", 6, First(6)});
  ExpectNoProblems();
}

TEST_P(GraphsOnCuda, OnnxCasesAgree) {
  testing::ExpectOnnxCasesAgree(*runner_, {"TELEGRAD_CUDA_EVERY", 3, First(3)});
  ExpectNoProblems();
}

INSTANTIATE_TEST_SUITE_P(Capabilities, GraphsOnCuda, ::testing::Values(80, 90),
                         [](const auto& info) { return StrCat("sm_", info.param); });

}  // namespace
}  // namespace telegrad
