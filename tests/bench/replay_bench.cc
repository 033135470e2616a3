// What a replay costs beside the arithmetic: an executable of many kernels, each too small to wake
// another thread, from Submit until its point is reached. Prints microseconds for one kernel, the
// least of many runs, because the machine has other work.
//
// Usage: replay_bench KERNELS RUNS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable.h"
#include "engine/ir/content_hash.h"

namespace telegrad {
namespace {

constexpr int64_t kElements = 16;

// Slot 1 = the mean of slot 0 and its reverse, of that and its reverse, and so on. Each step uses
// the one before at two places, so that each is stored.
FrozenGraph Steps(int kernels) {
  Graph g;
  const Shape shape{kElements};
  const int64_t axis[] = {0};
  const UOp half = g.ConstFloat(DType::kFloat32, 0.5);
  UOp value = g.Param(0, DType::kFloat32, shape);
  for (int i = 0; i < kernels; ++i) {
    if (i > 0) value = g.Make(Op::kContiguous, {value});
    const UOp both = g.Make(Op::kAdd, {value, g.Make(Op::kFlip, {value}, axis)});
    value = g.Make(Op::kMul, {both, half});
  }
  const UOp out = g.Param(1, DType::kFloat32, shape);
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {out, value})}));
}

absl::StatusOr<double> Measure(int kernels, int runs) {
  const Target target = HostTarget(0);
  TG_ASSIGN_OR_RETURN(const auto device, OpenCpu({.threads = target.threads, .target = target}));
  ExecutableCache cache({});
  const FrozenGraph graph = Steps(kernels);
  Budget budget({.nodes = INT64_MAX, .rewrites = INT64_MAX, .kernels = INT64_MAX});
  TG_ASSIGN_OR_RETURN(const ExecutableCache::Result made,
                      cache.Get(ContentHash(graph.root()), graph, *device, &budget));
  if (made.executable->num_launches() != kernels) {
    return Internal(made.executable->num_launches(), " kernels, not ", kernels);
  }
  constexpr int64_t kBytes = kElements * sizeof(float);
  std::vector<BufferView> buffers;
  for (int i = 0; i < 2; ++i) {
    TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory, device->Alloc(kBytes));
    buffers.push_back({std::move(memory), 0, kBytes});
  }
  auto* const in = static_cast<float*>(buffers[0].memory->host());
  for (int64_t i = 0; i < kElements; ++i) in[i] = static_cast<float>(i);
  double best = 1e9;
  for (int run = 0; run < runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    TG_ASSIGN_OR_RETURN(const TimelinePoint point, made.executable->Submit(buffers, {}));
    TG_RETURN_IF_ERROR(point.Wait());
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    best = std::min(best, time.count() / kernels);
  }
  const auto* out = static_cast<const float*>(buffers[1].memory->host());
  for (int64_t i = 0; i < kElements; ++i) {
    if (out[i] != (kElements - 1) / 2.0f) return Internal("element ", i, " is ", out[i]);
  }
  return best;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const int kernels = argc == 3 ? std::atoi(argv[1]) : 0;
  const int runs = argc == 3 ? std::atoi(argv[2]) : 0;
  if (kernels <= 0 || runs <= 0) {
    std::fprintf(stderr, "Usage: replay_bench KERNELS RUNS\n");
    return 2;
  }
  const absl::StatusOr<double> result = telegrad::Measure(kernels, runs);
  if (!result.ok()) {
    std::fprintf(stderr, "replay_bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%.4f\n", *result);
  return 0;
}
