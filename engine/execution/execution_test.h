// What the tests of this folder share: a device, a few graphs, buffers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/ir/content_hash.h"

namespace telegrad {

// The CPU, but for what it says of itself.
class DeclaredDevice final : public Device {
 public:
  explicit DeclaredDevice(std::unique_ptr<Device> cpu) : cpu_(std::move(cpu)) {}

  Rates declared;  // instead of the CPU's, where they are not 0
  std::optional<DeviceLink> linked;

  const std::string& name() const override { return cpu_->name(); }
  const Target& target() const override { return cpu_->target(); }
  int64_t memory_limit() const override { return cpu_->memory_limit(); }
  int64_t memory_used() const override { return cpu_->memory_used(); }
  Rates rates() const override { return declared.bytes > 0 ? declared : cpu_->rates(); }
  bool host_visible() const override { return cpu_->host_visible(); }
  std::optional<DeviceLink> link() const override { return linked; }
  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override { return cpu_->Alloc(size); }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    return cpu_->Load(image);
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return cpu_->Encode(std::move(commands));
  }
  std::span<Queue* const> queues() override { return cpu_->queues(); }
  absl::Status Health() const override { return cpu_->Health(); }

 private:
  std::unique_ptr<Device> cpu_;
};

// Memory that commands may not write.
class ReadOnlyMemory final : public Memory {
 public:
  explicit ReadOnlyMemory(std::shared_ptr<Memory> inner)
      : Memory(inner->host(), inner->size(), /*writable=*/false), inner_(std::move(inner)) {}

 private:
  const std::shared_ptr<Memory> inner_;
};

class ExecutionTest : public ::testing::Test {
 protected:
  explicit ExecutionTest(int64_t memory_limit = 0) {
    CpuOptions options;
    options.target = HostTarget(2);
    options.threads = 2;
    options.memory_limit = memory_limit;
    device_ = std::make_unique<DeclaredDevice>(*OpenCpu(options));
  }

  // The params of slots 0, 1, ..., each of n floats.
  static UOp Floats(Graph& g, int64_t slot, int64_t n) {
    return g.Param(slot, DType::kFloat32, Shape{n});
  }
  // A graph of these stores.
  static FrozenGraph Stores(Graph& g, std::initializer_list<std::pair<UOp, UOp>> stores) {
    std::vector<UOp> roots;
    for (const auto& [to, value] : stores) roots.push_back(g.Make(Op::kStore, {to, value}));
    return Freeze(g.Make(Op::kSink, DType::kVoid, roots));
  }
  // out (slot 1) = in (slot 0) + addend, of n floats.
  static FrozenGraph Add(double addend, int64_t n = 8) {
    Graph g;
    const UOp sum = g.Make(Op::kAdd, {Floats(g, 0, n), g.ConstFloat(DType::kFloat32, addend)});
    return Stores(g, {{Floats(g, 1, n), sum}});
  }
  // out (slot 1) = y * flip(y) by way of a temporary y = -in (slot 0).
  static FrozenGraph ThroughTemporary(int64_t n) {
    Graph g;
    const UOp y = g.Make(Op::kContiguous, {g.Make(Op::kNeg, {Floats(g, 0, n)})});
    const UOp product = g.Make(Op::kMul, {y, g.Make(Op::kFlip, {y}, Shape{0})});
    return Stores(g, {{Floats(g, 1, n), product}});
  }

  absl::StatusOr<ExecutableCache::Result> Get(ExecutableCache& cache, const FrozenGraph& graph,
                                              std::span<const VarValue> variables = {}) {
    Budget budget;
    return cache.Get(ContentHash(graph.root()), graph, *device_, &budget, variables);
  }
  std::shared_ptr<const Executable> Make(ExecutableCache& cache, const FrozenGraph& graph) {
    const auto made = Get(cache, graph);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->executable : nullptr;
  }

  BufferView Buffer(int64_t bytes) { return {*device_->Alloc(bytes), 0, bytes}; }
  BufferView Buffer(const std::vector<float>& values) {
    const BufferView out = Buffer(static_cast<int64_t>(values.size() * sizeof(float)));
    std::memcpy(out.memory->host(), values.data(), static_cast<size_t>(out.length));
    return out;
  }
  static std::vector<float> Values(const BufferView& view) {
    const auto* first = static_cast<const float*>(view.memory->host());
    return {first, first + view.length / static_cast<int64_t>(sizeof(float))};
  }

  std::unique_ptr<DeclaredDevice> device_;
};

}  // namespace telegrad
