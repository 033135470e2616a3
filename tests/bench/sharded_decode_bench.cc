// A decoder's attention over two devices of the processor, with caches that grow: what a step takes
// whose position is new, and one whose position has been run before.
//
// Usage: sharded_decode_bench [STEPS]
// Prints, for each kind of step, the median time to find or make its executable and to run it in
// microseconds, and per step how many kernels were compiled, graphs scheduled, and bytes sent.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/compile/compiler.h"
#include "engine/execution/clock.h"
#include "engine/execution/partitioned_cache.h"
#include "engine/ir/content_hash.h"
#include "tests/bench/timing.h"
#include "tests/conformance/sharded_step.h"

namespace telegrad {
namespace {

struct Steps {
  std::vector<double> made, ran;  // microseconds
};

int Run(int64_t steps) {
  const testing::ShardedStep shape{
      .heads = 8, .depth = 64, .width = 512, .positions = std::max<int64_t>(steps, 1024)};
  std::vector<std::unique_ptr<Device>> owned;
  std::vector<Device*> devices;
  for (int i = 0; i < 2; ++i) {
    auto device = OpenCpu({.index = i, .threads = 2, .target = HostTarget(2)});
    if (!device.ok()) return 1;
    owned.push_back(*std::move(device));
    devices.push_back(owned.back().get());
  }
  std::mt19937_64 rng(1);
  std::vector<BufferView> bound;
  for (const std::vector<uint8_t>& bytes : shape.Contents(rng)) {
    const auto size = static_cast<int64_t>(bytes.size());
    bound.push_back({*devices[0]->Alloc(size), 0, size});
    std::memcpy(bound.back().memory->host(), bytes.data(), bytes.size());
  }
  const FrozenGraph graph = shape.Graph();
  const Digest hash = ContentHash(graph.root());
  ExecutableCache parts{ExecutableCache::Limits{}};
  PartitionedCache cache{&parts, {}};
  const auto run = [&](int64_t position, Steps* out) {
    const std::vector<VarValue> values{{testing::ShardedStep::kPosition, position}};
    Budget budget;
    const Stopwatch making;
    std::shared_ptr<const Executable> executable = cache.Find(hash, devices, values);
    if (executable == nullptr) {
      auto made = cache.Get(hash, graph, devices, &budget, values);
      if (!made.ok()) {
        std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
        std::exit(1);
      }
      executable = std::move(made->executable);
    }
    out->made.push_back(static_cast<double>(making.ns()) / 1e3);
    const Stopwatch running;
    const auto point = executable->Submit(bound, {});
    if (!point.ok() || !point->Wait().ok()) std::exit(1);
    out->ran.push_back(static_cast<double>(running.ns()) / 1e3);
  };
  const auto report = [&](const char* name, int64_t first, int64_t count) {
    const ExecutableCache::Stats before = parts.stats();
    Steps out;
    for (int64_t i = 0; i < count; ++i) run(first + i, &out);
    const ExecutableCache::Stats after = parts.stats();
    const auto each = [&](auto now, auto then) {
      return static_cast<double>(now - then) / static_cast<double>(count);
    };
    std::printf("%s\t%.1f us to make\t%.1f us to run\t%.1f kernels\t%.1f graphs\t%.0f bytes\n",
                name, bench::Median(out.made), bench::Median(out.ran),
                each(after.kernels_compiled, before.kernels_compiled),
                each(after.misses, before.misses), each(after.bytes_sent, before.bytes_sent));
  };
  report("first", 0, 1);
  report("new position", 1, steps - 1);
  report("known position", 1, steps - 1);
  return 0;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) { return telegrad::Run(argc > 1 ? std::atoi(argv[1]) : 64); }
