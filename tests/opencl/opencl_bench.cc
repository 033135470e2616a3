// A matrix product on an OpenCL device and on the CPU device, in turns: the rates, and their ratio.
// Exits 1 where the ratio is below the goal, 77 where there is no OpenCL device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "devices/opencl/opencl_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/content_hash.h"
#include "tests/devices/fixture.h"

namespace telegrad {
namespace {

constexpr int64_t kSize = 1024;
constexpr int kRounds = 9;
constexpr double kGoal = 0.4;

// The product's executable on a device, with buffers.
class Product {
 public:
  absl::Status Prepare(Device& device, Device& host) {
    device_ = &device;
    Builder b;
    const Tensor x = b.Param(DType::kFloat32, {kSize, kSize}, "x");
    const Tensor y = b.Param(DType::kFloat32, {kSize, kSize}, "y");
    b.Output(x.MatMul(y), "out");
    TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
    Budget budget;
    const UOp root = plan.graph.root();
    TG_ASSIGN_OR_RETURN(built_, cache_.Get(ContentHash(root), Freeze(root), device, &budget));
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (size_t slot = 0; slot < plan.slots.size(); ++slot) {
      std::string bytes(kSize * kSize * 4, '\0');
      for (size_t i = 0; i < bytes.size(); i += 4) {
        const float value = normal(random);
        std::memcpy(&bytes[i], &value, 4);
      }
      TG_ASSIGN_OR_RETURN(auto memory, device.Alloc(static_cast<int64_t>(bytes.size())));
      buffers_.push_back(Whole(memory));
      const BufferView from = HostBuffer(host, bytes);
      TG_ASSIGN_OR_RETURN(const TimelinePoint copied,
                          Copy(CopyDevice(device, host), buffers_.back(), from));
      TG_RETURN_IF_ERROR(copied.Wait());
    }
    return absl::OkStatus();
  }

  // Seconds of one run; kept if it is the shortest.
  absl::Status Run() {
    const auto begin = std::chrono::steady_clock::now();
    TG_ASSIGN_OR_RETURN(const TimelinePoint done, built_.executable->Submit(buffers_, {}));
    TG_RETURN_IF_ERROR(done.Wait());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best_ = std::min(best_, took.count());
    return absl::OkStatus();
  }
  double rate() const { return 2.0 * kSize * kSize * kSize / best_; }

 private:
  Device* device_ = nullptr;
  ExecutableCache cache_{ExecutableCache::Limits{}};
  ExecutableCache::Result built_;
  std::vector<BufferView> buffers_;
  double best_ = 1e9;
};

absl::Status Measure(Device& opencl, double* ratio) {
  const auto host = OpenHost({.index = 7, .memory_limit = int64_t{1} << 30});
  TG_ASSIGN_OR_RETURN(const auto cpu, OpenCpu({.threads = opencl.target().threads,
                                               .target = HostTarget(opencl.target().threads),
                                               .memory_limit = int64_t{1} << 30}));
  Product there, here;
  TG_RETURN_IF_ERROR(there.Prepare(opencl, *host));
  TG_RETURN_IF_ERROR(here.Prepare(*cpu, *host));
  for (int round = 0; round < kRounds; ++round) {
    TG_RETURN_IF_ERROR(there.Run());
    TG_RETURN_IF_ERROR(here.Run());
  }
  *ratio = there.rate() / here.rate();
  std::printf("matmul %d^3: OPENCL:0 %.0f GFLOP/s, CPU:0 %.0f GFLOP/s, ratio %.2f\n",
              static_cast<int>(kSize), there.rate() / 1e9, here.rate() / 1e9, *ratio);
  return absl::OkStatus();
}

int Main() {
  std::vector<std::string> notes;
  const auto devices = OpenOpenCls({.devices = 1}, &notes);
  if (devices.empty()) {
    std::printf("opencl_bench: skipped: %s\n", notes.empty() ? "no device" : notes[0].c_str());
    return 77;
  }
  double ratio = 0;
  if (const absl::Status status = Measure(*devices[0], &ratio); !status.ok()) {
    std::printf("opencl_bench: error: %s\n", status.ToString().c_str());
    return 2;
  }
  return ratio >= kGoal ? 0 : 1;
}

}  // namespace
}  // namespace telegrad

int main() { return telegrad::Main(); }
