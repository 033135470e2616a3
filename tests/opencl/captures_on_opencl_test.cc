// The captured graphs on the OpenCL device, every 25th, and ONNX's cases, every 6th;
// TELEGRAD_OPENCL_EVERY=1 takes all.
#include "tests/devices/captures_on_device.h"
#include "tests/devices/onnx_on_device.h"
#include "tests/opencl/graph_runner.h"

namespace telegrad {
namespace {

TEST(CapturesOnOpenCl, Agree) {
  SKIP_WITHOUT_OPENCL();
  GraphRunner runner;
  testing::ExpectCapturesAgree(runner, {"TELEGRAD_OPENCL_EVERY", 25}, !OpenClIsInexact());
}

TEST(OnnxOnOpenCl, Agree) {
  SKIP_WITHOUT_OPENCL();
  GraphRunner runner;
  testing::ExpectOnnxCasesAgree(runner, {"TELEGRAD_OPENCL_EVERY", 6});
}

}  // namespace
}  // namespace telegrad
