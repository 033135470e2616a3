// Random graphs on three CPUs and a device that takes graphs, compiled and run, leave what the
// reference interpreter says. Runs follow each other without waiting, so that they share buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/partitioned_cache.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/random_graph.h"
#include "tests/conformance/random_values.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/spread_graph.h"
#include "tests/devices/fixture.h"
#include "tests/fakes/loopback/graph_loader.h"
#include "tests/fakes/loopback/loopback_device.h"

namespace telegrad {
namespace {

using testing::RandomGraph;
using testing::Slots;

constexpr int kDevices = 4;  // the last one takes graphs
constexpr int kRuns = 3;

std::unique_ptr<Device> Cpu(int index) {
  return OpenHost({.index = index, .memory_limit = int64_t{256} << 20, .target = HostTarget(1)});
}

class SeveralDevices : public ::testing::Test {
 protected:
  SeveralDevices() {
    for (int i = 0; i + 1 < kDevices; ++i) owned_.push_back(Cpu(i));
    LoopbackOptions options;
    options.inner = Cpu(kDevices);
    options.load = MakeGraphLoader(beyond_, {});
    owned_.push_back(OpenLoopback(std::move(options)));
    for (const auto& device : owned_) devices_.push_back(device.get());
  }

  absl::Status CopyNow(Device& device, const BufferView& to, const BufferView& from) {
    TG_ASSIGN_OR_RETURN(const TimelinePoint point, Copy(device, to, from));
    return point.Wait();
  }

  // The slots' bytes go to the devices that the graph has them on, and come back.
  absl::Status Run(UOp sink, std::span<const VarValue> variables, Slots* slots) {
    std::vector<Device*> of(slots->size(), devices_[0]);
    for (const uint32_t id : PostOrder(sink)) {
      const UOp u = sink.graph()->at(id);
      if (u.is(Op::kParam)) of[static_cast<size_t>(u.slot())] = devices_[u.device()];
    }
    std::vector<BufferView> staged, bound;
    for (size_t i = 0; i < slots->size(); ++i) {
      const auto size = static_cast<int64_t>((*slots)[i].size());
      TG_ASSIGN_OR_RETURN(auto host, devices_[0]->Alloc(std::max<int64_t>(size, 1)));
      TG_ASSIGN_OR_RETURN(auto memory, of[i]->Alloc(std::max<int64_t>(size, 1)));
      std::ranges::copy((*slots)[i], static_cast<uint8_t*>(host->host()));
      staged.push_back({std::move(host), 0, size});
      bound.push_back({std::move(memory), 0, size});
      TG_RETURN_IF_ERROR(CopyNow(*of[i], bound[i], staged[i]));
    }
    Budget budget;
    TG_ASSIGN_OR_RETURN(const auto made,
                        cache_.Get(ContentHash(sink), Freeze(sink), devices_, &budget, variables));
    std::vector<TimelinePoint> last;
    for (int run = 0; run < kRuns; ++run) {
      TG_ASSIGN_OR_RETURN(TimelinePoint point, made.executable->Submit(bound, last));
      last = {std::move(point)};
    }
    TG_RETURN_IF_ERROR(last[0].Wait(absl::Seconds(60)));
    for (size_t i = 0; i < slots->size(); ++i) {
      TG_RETURN_IF_ERROR(CopyNow(*of[i], staged[i], bound[i]));
      std::copy_n(static_cast<const uint8_t*>(staged[i].memory->host()), (*slots)[i].size(),
                  (*slots)[i].begin());
    }
    return absl::OkStatus();
  }

  // No value is so frequent that a form is made for it alone.
  const std::shared_ptr<ExecutableCache> beyond_ =
      std::make_shared<ExecutableCache>(ExecutableCache::Limits{.specializations = 0});
  std::vector<std::unique_ptr<Device>> owned_;
  std::vector<Device*> devices_;
  ExecutableCache parts_{ExecutableCache::Limits{.specializations = 0}};
  PartitionedCache cache_{&parts_, {}};
};

TEST_F(SeveralDevices, RunsAgreeWithTheReference) {
  int ran = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 rng(seed);
    Graph graph, spread;
    RandomGraph random = testing::MakeRandomGraph(rng, 6 + static_cast<int>(seed % 25), &graph,
                                                  testing::Vocabulary::kAll);
    if (!random.sink.valid()) continue;
    const UOp sink = testing::Spread(random.sink, kDevices, rng, &spread);
    if (!sink.valid() || !Verify(sink, kTensorLevel).ok()) continue;
    const std::vector<VarValue> values = testing::VariablesOf(sink, random.variables);
    reference::Variables variables;
    for (const VarValue& v : values) variables[v.id] = v.value;
    Slots want = random.slots, got = random.slots;
    Budget budget;
    bool judged = true;
    for (int run = 0; run < kRuns; ++run) {
      judged &= reference::Evaluate(sink, want, &budget, variables).ok();
    }
    if (!judged) continue;
    const absl::Status status = Run(sink, values, &got);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status << "\n" << Print(sink);
    ++ran;
    for (size_t i = 0; i < want.size(); ++i) {
      const std::string difference =
          testing::Difference(random.dtypes[i], random.exact[i], want[i], got[i]);
      ASSERT_EQ(difference, "") << "seed " << seed << ", slot " << i << "\n" << Print(sink);
    }
  }
  EXPECT_GT(ran, 25);
  EXPECT_GT(cache_.bytes_sent(), 0);
}

// Everything that is made for a new value.
struct MadeFor {
  uint64_t partitions, scheduled, kernels, scheduled_beyond, kernels_beyond;
  friend bool operator==(const MadeFor&, const MadeFor&) = default;
};

// A graph with variables runs with other values after the first: nothing is partitioned, scheduled
// or compiled for them, here or on the device that takes graphs.
TEST_F(SeveralDevices, OtherValuesAreRunByWhatIsThere) {
  const auto made = [&] {
    const ExecutableCache::Stats here = parts_.stats(), beyond = beyond_->stats();
    return MadeFor{here.partitions, here.misses, here.kernels_compiled, beyond.misses,
                   beyond.kernels_compiled};
  };
  int graphs = 0, values = 0;
  for (uint64_t seed = 1; graphs < 40; ++seed) {
    ASSERT_LT(seed, 2000u) << "too few graphs have variables";
    std::mt19937_64 rng(seed);
    Graph graph, spread;
    RandomGraph random = testing::MakeRandomGraph(rng, 6 + static_cast<int>(seed % 25), &graph,
                                                  testing::Vocabulary::kAll);
    if (!random.sink.valid() || random.variables.empty()) continue;
    const UOp sink = testing::Spread(random.sink, 2 + seed % (kDevices - 1), rng, &spread);
    if (!sink.valid() || !Verify(sink, kTensorLevel).ok()) continue;
    const std::vector<VarRange> ranges = RangesOf(sink);
    if (ranges.empty() || DeviceNumbers(sink).size() < 2) continue;
    bool first = true;
    MadeFor before{};
    for (int set = 0; set < 6; ++set) {
      const std::vector<VarValue> its = testing::RandomValues(ranges, rng);
      reference::Variables variables;
      for (const VarValue& v : its) variables[v.id] = v.value;
      Slots want = random.slots, got = random.slots;
      Budget budget;
      bool judged = true;
      for (int run = 0; run < kRuns; ++run) {
        judged &= reference::Evaluate(sink, want, &budget, variables).ok();
      }
      if (!judged) continue;
      std::string text = StrCat("seed ", seed, ", values");
      for (const VarValue& v : its) StrAppend(&text, " ", v.id, "=", v.value);
      const absl::Status status = Run(sink, its, &got);
      ASSERT_TRUE(status.ok()) << text << ": " << status << "\n" << Print(sink);
      for (size_t i = 0; i < want.size(); ++i) {
        const std::string difference =
            testing::Difference(random.dtypes[i], random.exact[i], want[i], got[i]);
        ASSERT_EQ(difference, "") << text << ", slot " << i << "\n" << Print(sink);
      }
      if (!first) ASSERT_EQ(made(), before) << text << "\n" << Print(sink);
      before = made();
      values += first ? 0 : 1;
      graphs += first ? 1 : 0;
      first = false;
    }
  }
  EXPECT_GT(values, 3 * graphs);
  EXPECT_EQ(parts_.stats().partitions_for_values, 0u);
}

}  // namespace
}  // namespace telegrad
