// Runs an ONNX model on the CPU as its executable, for tests/bench/onnxruntime_peer.py.
//
// Usage: onnx_run_bench FILE.onnx THREADS [deterministic]
//
// Once it is compiled, prints a line with the sum of the magnitudes of each float output of a run
// whose inputs are those of Fill; then, for each line of its input, which is a number of runs, the
// median of their times in ms.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/onnx/import.h"
#include "engine/ir/content_hash.h"

namespace telegrad {
namespace {

// What the peer gives the input, too: small numbers of both signs, and 0 and 1 for integers, which
// every table of embeddings has.
void Fill(DType dtype, int64_t elements, void* to) {
  for (int64_t i = 0; i < elements; ++i) {
    if (dtype == DType::kFloat32) {
      static_cast<float*>(to)[i] = static_cast<float>(i * 7919 % 1000) / 1000 - 0.5F;
    } else if (dtype == DType::kInt64) {
      static_cast<int64_t*>(to)[i] = i % 2;
    } else if (dtype == DType::kInt32) {
      static_cast<int32_t*>(to)[i] = static_cast<int32_t>(i % 2);
    }
  }
}

class Bench {
 public:
  absl::Status Load(const std::string& path, int threads, bool deterministic) {
    TG_ASSIGN_OR_RETURN(file_, ReadFile(path));
    TG_ASSIGN_OR_RETURN(const OnnxPlan onnx, ImportOnnx(file_));
    CpuOptions options;
    options.threads = threads;
    options.target = HostTarget(threads);
    options.target.deterministic = deterministic;
    TG_ASSIGN_OR_RETURN(device_, OpenCpu(options));
    Budget budget;
    const Plan& plan = onnx.plan;
    TG_ASSIGN_OR_RETURN(const auto made,
                        cache_.Get(ContentHash(plan.graph.root()), plan.graph, *device_, &budget));
    executable_ = made.executable;
    for (const SlotUse& slot : executable_->slots()) {
      TG_ASSIGN_OR_RETURN(auto memory, device_->Alloc(std::max<int64_t>(slot.bytes, 1)));
      bindings_.push_back({std::move(memory), 0, slot.bytes, NewContent()});
    }
    const auto host = [&](int slot) { return bindings_[static_cast<size_t>(slot)].memory->host(); };
    for (const OnnxWeight& weight : onnx.weights) {
      const HostTensor value = weight.value ? *weight.value : onnx.Value(weight);
      if (static_cast<size_t>(weight.slot) >= bindings_.size()) continue;
      std::memcpy(host(weight.slot), value.bytes.data(), value.bytes.size());
    }
    for (const OnnxValue& input : onnx.inputs) {
      const Slot& slot = plan.slots[static_cast<size_t>(input.slot)];
      if (static_cast<size_t>(input.slot) >= bindings_.size()) continue;
      Fill(slot.dtype, NumElements(slot.shape), host(input.slot));
    }
    // The first run touches new memory, the second one packs weights.
    for (int i = 0; i < 2; ++i) TG_RETURN_IF_ERROR(Run().status());
    for (const OnnxValue& output : onnx.outputs) {
      const Slot& slot = plan.slots[static_cast<size_t>(output.slot)];
      if (slot.dtype != DType::kFloat32) continue;
      double sum = 0;
      const auto* const values = static_cast<const float*>(host(output.slot));
      for (int64_t i = 0; i < NumElements(slot.shape); ++i) sum += std::abs(values[i]);
      std::printf("%.8g ", sum);
    }
    std::printf("\n");
    return absl::OkStatus();
  }

  absl::StatusOr<double> Median(int runs) {
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
      TG_ASSIGN_OR_RETURN(const double ms, Run());
      times.push_back(ms);
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

 private:
  absl::StatusOr<double> Run() {
    const auto begin = std::chrono::steady_clock::now();
    TG_ASSIGN_OR_RETURN(const TimelinePoint end, executable_->Submit(bindings_, {}));
    TG_RETURN_IF_ERROR(end.Wait());
    const auto took = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration<double, std::milli>(took).count();
  }

  std::string file_;
  std::shared_ptr<Device> device_;
  ExecutableCache cache_{{}};
  std::shared_ptr<const Executable> executable_;
  std::vector<BufferView> bindings_;
};

absl::Status Main(const std::string& path, int threads, bool deterministic) {
  Bench bench;
  TG_RETURN_IF_ERROR(bench.Load(path, threads, deterministic));
  std::fflush(stdout);
  int runs = 0;
  while (std::cin >> runs && runs > 0) {
    TG_ASSIGN_OR_RETURN(const double ms, bench.Median(runs));
    std::printf("%.6f\n", ms);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const bool deterministic = argc == 4 && std::string_view(argv[3]) == "deterministic";
  if (argc != 3 && !deterministic) {
    std::fprintf(stderr, "Usage: onnx_run_bench FILE.onnx THREADS [deterministic]\n");
    return 2;
  }
  const absl::Status status = telegrad::Main(argv[1], std::atoi(argv[2]), deterministic);
  if (status.ok()) return 0;
  std::fprintf(stderr, "onnx_run_bench: %s\n", status.ToString().c_str());
  return 1;
}
