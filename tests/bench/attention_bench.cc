// Attention on the CPU, as one graph: launches, memory and processor time of a run.
//
// Usage: attention_bench SEEN LENGTH [HEADS [GROUPS [CHANNELS [REPEATS [step]]]]]
// SEEN is full, causal, window (of 256 keys) or alibi; with `step`, also the gradients of queries,
// keys and values. Prints one line: launches, bytes of temporaries, the best of REPEATS runs in
// milliseconds of wall time and the mean of processor time, and the GFLOP/s of processor time,
// counting all products of a full attention, and five more of its gradients. Of 0 REPEATS it prints
// the graph.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string_view>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/schedule/schedule.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

double ProcessorMs() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double WallMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

// Values of some size, so that no exponential is of zeros alone.
absl::StatusOr<BufferView> Filled(Device& device, int64_t bytes, uint32_t state) {
  TG_ASSIGN_OR_RETURN(auto memory, device.Alloc(std::max<int64_t>(bytes, 1)));
  auto* const values = static_cast<float*>(memory->host());
  for (int64_t i = 0; values != nullptr && i < bytes / 4; ++i) {
    state = state * 1664525 + 1013904223;
    values[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return BufferView{std::move(memory), 0, bytes, NewContent()};
}

absl::Status Main(const testing::AttentionShape& shape, int repeats, bool step) {
  TG_ASSIGN_OR_RETURN(const Plan plan,
                      step ? testing::AttentionStep(shape) : testing::Attention(shape));
  if (repeats == 0) {
    std::printf("%s", Print(plan.graph.root()).c_str());
    return absl::OkStatus();
  }
  CpuOptions options;
  options.target = HostTarget(0);
  TG_ASSIGN_OR_RETURN(const auto device, OpenCpu(options));
  ExecutableCache cache({});
  Budget budget;
  TG_ASSIGN_OR_RETURN(
      const Schedule schedule,
      ScheduleGraph(plan.graph.root(), &budget, ScheduleOptions::For(device->target())));
  TG_ASSIGN_OR_RETURN(const auto made,
                      cache.Get(ContentHash(plan.graph.root()), plan.graph, *device, &budget));
  std::vector<BufferView> bindings;
  for (const SlotUse& slot : made.executable->slots()) {
    const auto seed = static_cast<uint32_t>(bindings.size() + 1);
    TG_ASSIGN_OR_RETURN(bindings.emplace_back(), Filled(*device, slot.bytes, seed));
  }
  double wall = std::numeric_limits<double>::infinity(), before = 0;
  for (int i = 0; i <= repeats; ++i) {
    const double begin = WallMs();
    if (i == 1) before = ProcessorMs();
    TG_ASSIGN_OR_RETURN(const TimelinePoint end, made.executable->Submit(bindings, {}));
    TG_RETURN_IF_ERROR(end.Wait());
    if (i == 0) continue;  // touches new memory
    wall = std::min(wall, WallMs() - begin);
  }
  const double processor = (ProcessorMs() - before) / repeats;
  const double flops = (step ? 14.0 : 4.0) *
                       static_cast<double>(shape.heads * shape.queries * shape.keys) *
                       static_cast<double>(shape.batch * shape.channels);
  std::printf("%zu launches, %lld bytes of temporaries, %.3f ms, %.3f ms of processors, %.1f\n",
              schedule.kernels.size(), static_cast<long long>(schedule.arena_bytes), wall,
              processor, flops / processor * 1e-6);
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  constexpr std::string_view kSeen[] = {"full", "causal", "window", "alibi"};
  const auto number = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const auto* const seen =
      argc > 2 ? std::ranges::find(kSeen, std::string_view(argv[1])) : std::end(kSeen);
  telegrad::testing::AttentionShape shape;
  shape.queries = shape.keys = number(2, 0);
  shape.heads = number(3, 12);
  shape.groups = number(4, shape.heads);
  shape.channels = number(5, 64);
  const bool step = argc == 8 && argv[7] == std::string_view("step");
  if (seen == std::end(kSeen) || shape.queries < 1 || shape.groups < 1 || argc > 8) {
    std::fprintf(stderr, "Usage: attention_bench SEEN LENGTH ...; see the head of its source\n");
    return 2;
  }
  shape.seen = static_cast<telegrad::testing::Seen>(seen - kSeen);
  const absl::Status status = telegrad::Main(shape, static_cast<int>(number(6, 5)), step);
  if (status.ok()) return 0;
  std::fprintf(stderr, "attention_bench: %s\n", status.ToString().c_str());
  return 1;
}
