// Devices of one process, and graphs over several of them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/execution/execution_test.h"
#include "engine/execution/partitioned_cache.h"
#include "engine/execution/partitioned_executable.h"
#include "tests/devices/fixture.h"
#include "tests/fakes/loopback/graph_loader.h"
#include "tests/fakes/loopback/loopback_device.h"

namespace telegrad {

class PartitionedTest : public ::testing::Test {
 protected:
  static constexpr DType kFloat = DType::kFloat32;

  static std::unique_ptr<Device> Cpu(int index) {
    return OpenHost({.index = index, .target = HostTarget(1)});
  }
  void Add(std::unique_ptr<Device> device) {
    devices_.push_back(device.get());
    owned_.push_back(std::move(device));
  }
  void AddCpus(int n) {
    for (int i = 0; i < n; ++i) Add(Cpu(i));
  }
  void AddLoopback(const Budget::Limits& limits = {}) {
    beyond_ = std::make_shared<ExecutableCache>(ExecutableCache::Limits{});
    LoopbackOptions options;
    options.inner = Cpu(7);
    options.load = MakeGraphLoader(beyond_, limits);
    Add(OpenLoopback(std::move(options)));
  }

  UOp Param(int64_t slot, int64_t n, int64_t device) {
    return g_.Param(slot, kFloat, Shape{n}, device);
  }
  UOp Copy(UOp x, int64_t device) { return g_.Make(Op::kCopy, DType::kVoid, {x}, {device}); }
  FrozenGraph Stores(const std::vector<std::pair<UOp, UOp>>& stores) {
    std::vector<UOp> roots;
    for (const auto& [to, value] : stores) roots.push_back(g_.Make(Op::kStore, {to, value}));
    const UOp sink = g_.Make(Op::kSink, DType::kVoid, roots);
    EXPECT_TRUE(sink.valid()) << g_.status();
    return Freeze(sink);
  }
  // slot 1 (device 1) = sqrt of -(slot 0 (device 0)) ... twice over the border and back to slot 2.
  FrozenGraph ThereAndBack(int64_t n) {
    const UOp there = Copy(g_.Make(Op::kNeg, {Param(0, n, 0)}), 1);
    const UOp squared = g_.Make(Op::kMul, {there, there});
    return Stores({{Param(1, n, 1), squared}, {Param(2, n, 0), Copy(squared, 0)}});
  }

  absl::StatusOr<ExecutableCache::Result> Get(const FrozenGraph& graph,
                                              std::span<const VarValue> values = {}) {
    Budget budget;
    return cache_.Get(ContentHash(graph.root()), graph, devices_, &budget, values);
  }
  // Variable 0, from 0 to `most`.
  UOp Length(int64_t most) { return g_.Make(Op::kVar, DType::kVoid, {}, {0, 0, most, 1}); }
  // The first n of the rows of a value.
  UOp Rows(UOp x, UOp n) {
    std::vector<int64_t> pairs{0, -2};
    for (size_t i = 1; i < x.shape().size(); ++i) pairs.insert(pairs.end(), {0, x.shape()[i]});
    return g_.Make(Op::kShrink, {x, n}, pairs);
  }
  // A run with variable 0.
  void RunWith(const FrozenGraph& graph, int64_t n, const std::vector<BufferView>& bound) {
    const auto made = Get(graph, std::vector<VarValue>{{0, n}});
    ASSERT_TRUE(made.ok()) << n << ": " << made.status();
    const auto point = made->executable->Submit(bound, {});
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_EQ(point->Wait(), absl::OkStatus());
  }
  std::shared_ptr<const Executable> Make(const FrozenGraph& graph) {
    const auto made = Get(graph);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->executable : nullptr;
  }

  BufferView Buffer(int64_t device, int64_t n) {
    return {*devices_[device]->Alloc(4 * n), 0, 4 * n};
  }
  // By way of host memory of the first device where the device's cannot be addressed.
  void Move(const BufferView& to, const BufferView& from, Device& device) {
    const auto point = telegrad::Copy(device, to, from);
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_TRUE(point->Wait().ok());
  }
  BufferView Filled(int64_t device, const std::vector<float>& values) {
    const auto n = static_cast<int64_t>(values.size());
    BufferView host = Buffer(0, n);
    std::memcpy(host.memory->host(), values.data(), static_cast<size_t>(host.length));
    if (devices_[device]->host_visible() && device == 0) return host;
    BufferView out = Buffer(device, n);
    Move(out, host, *devices_[device]);
    return out;
  }
  std::vector<float> Values(int64_t device, const BufferView& view) {
    BufferView host = view;
    if (!devices_[device]->host_visible()) {
      EXPECT_EQ(view.memory->host(), nullptr);
      host = Buffer(0, view.length / 4);
      Move(host, view, *devices_[device]);
    }
    const auto* first = static_cast<const float*>(host.memory->host());
    return {first, first + view.length / 4};
  }

  // So many numbers, one more each.
  static std::vector<float> Counted(int64_t n, float first = 1) {
    std::vector<float> out(static_cast<size_t>(n));
    std::iota(out.begin(), out.end(), first);
    return out;
  }

  Graph g_;
  std::shared_ptr<ExecutableCache> beyond_;
  std::vector<std::unique_ptr<Device>> owned_;
  std::vector<Device*> devices_;  // by the graph's numbers
  ExecutableCache parts_{ExecutableCache::Limits{}};
  PartitionedCache cache_{&parts_, {}};
};

}  // namespace telegrad
