// A decoder's attention over several devices, with caches that grow: each step has another size,
// and all of them run what the first one made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/compile/compiler.h"
#include "engine/execution/partitioned_cache.h"
#include "engine/execution/partitioned_executable.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/sharded_step.h"
#include "tests/devices/fixture.h"
#include "tests/fakes/loopback/graph_loader.h"
#include "tests/fakes/loopback/loopback_device.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using testing::ShardedStep;
using testing::Slots;

constexpr DType kFloat = DType::kFloat32;

class ShardedDecode : public ::testing::Test {
 protected:
  std::unique_ptr<Device> Cpu(int index) {
    return OpenHost({.index = index, .target = HostTarget(1)});
  }
  void AddCpus(int n) {
    for (int i = 0; i < n; ++i) Add(Cpu(i));
  }
  void AddLoopback() {
    LoopbackOptions options;
    options.inner = Cpu(7);
    options.load = MakeGraphLoader(beyond_, {});
    Add(OpenLoopback(std::move(options)));
  }
  void Add(std::unique_ptr<Device> device) {
    devices_.push_back(device.get());
    owned_.push_back(std::move(device));
  }

  absl::StatusOr<std::shared_ptr<const Executable>> Make(const FrozenGraph& graph,
                                                         std::vector<VarValue> values) {
    Budget budget;
    const Digest hash = ContentHash(graph.root());
    if (auto found = cache_.Find(hash, devices_, values); found != nullptr) return found;
    ++asked_;
    auto made = cache_.Get(hash, graph, devices_, &budget, values);
    if (!made.ok()) return made.status();
    return made->executable;
  }
  void CopyTo(int64_t device, const BufferView& to, const BufferView& from) {
    const auto point = Copy(*devices_[device], to, from);
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_EQ(point->Wait(), absl::OkStatus());
  }
  BufferView Filled(int64_t device, const std::vector<uint8_t>& bytes) {
    const auto size = static_cast<int64_t>(bytes.size());
    BufferView host{*owned_[0]->Alloc(size), 0, size}, out{*devices_[device]->Alloc(size), 0, size};
    std::memcpy(host.memory->host(), bytes.data(), bytes.size());
    CopyTo(device, out, host);
    return out;
  }
  std::vector<uint8_t> Bytes(int64_t device, const BufferView& view) {
    BufferView host{*owned_[0]->Alloc(view.length), 0, view.length};
    CopyTo(device, host, view);
    const auto* const first = static_cast<const uint8_t*>(host.memory->host());
    return {first, first + view.length};
  }
  std::vector<BufferView> Bind(const ShardedStep& step, const Slots& contents) {
    std::vector<BufferView> out;
    for (int64_t s = 0; s < step.slots(); ++s) {
      out.push_back(Filled(step.device_of(s), contents[static_cast<size_t>(s)]));
    }
    return out;
  }

  // Decodes all positions and compares all slots with the interpreter's after each.
  void Decode(const ShardedStep& step) {
    std::mt19937_64 rng(1);
    Slots want = step.Contents(rng);
    const std::vector<BufferView> bound = Bind(step, want);
    const FrozenGraph graph = step.Graph();
    ASSERT_EQ(Verify(graph.root(), kTensorLevel), absl::OkStatus());
    ExecutableCache::Stats first, first_beyond;
    for (int64_t at = 0; at < step.positions; ++at) {
      const auto made = Make(graph, {{ShardedStep::kPosition, at}});
      ASSERT_TRUE(made.ok()) << made.status();
      const auto point = (*made)->Submit(bound, {});
      ASSERT_TRUE(point.ok()) << point.status();
      ASSERT_EQ(point->Wait(), absl::OkStatus()) << at;
      Budget budget;
      ASSERT_EQ(reference::Evaluate(graph.root(), want, &budget, {{ShardedStep::kPosition, at}}),
                absl::OkStatus());
      for (int64_t s = 0; s < step.slots(); ++s) {
        const std::vector<uint8_t> got = Bytes(step.device_of(s), bound[static_cast<size_t>(s)]);
        ASSERT_EQ(testing::Difference(kFloat, false, want[static_cast<size_t>(s)], got), "")
            << "position " << at << ", slot " << s;
      }
      const ExecutableCache::Stats now = parts_.stats(), beyond = beyond_->stats();
      if (at == 0) {
        first = now;
        first_beyond = beyond;
        continue;
      }
      ASSERT_EQ(now.kernels_compiled, first.kernels_compiled) << at;
      ASSERT_EQ(now.misses, first.misses) << at << ": a graph was scheduled";
      ASSERT_EQ(beyond.kernels_compiled, first_beyond.kernels_compiled) << at;
      ASSERT_EQ(beyond.misses, first_beyond.misses) << at;
      ASSERT_EQ(now.partitions, 1u) << at;
    }
    EXPECT_EQ(asked_, 1) << "later steps found all that they need";
    // The input to the others, their sums to the first: nothing of the caches is sent.
    const int64_t row = 4 * step.width, others = step.devices - 1;
    EXPECT_EQ(parts_.stats().bytes_sent, step.positions * 2 * others * row);
  }

  const std::shared_ptr<ExecutableCache> beyond_ =
      std::make_shared<ExecutableCache>(ExecutableCache::Limits{});
  std::vector<std::unique_ptr<Device>> owned_;
  std::vector<Device*> devices_;
  ExecutableCache parts_{ExecutableCache::Limits{}};
  PartitionedCache cache_{&parts_, {}};
  int asked_ = 0;  // what was there for none
};

TEST_F(ShardedDecode, OverTwoDevicesCompilesOnce) {
  AddCpus(2);
  Decode({});
}

TEST_F(ShardedDecode, OverFourDevicesCompilesOnce) {
  AddCpus(4);
  Decode({.devices = 4, .heads = 8, .depth = 4, .positions = 20});
}

// The device's part travels once, and each run sends the position with it.
TEST_F(ShardedDecode, WithADeviceThatTakesGraphsCompilesOnce) {
  AddCpus(1);
  AddLoopback();
  Decode({});
}

}  // namespace
}  // namespace telegrad
