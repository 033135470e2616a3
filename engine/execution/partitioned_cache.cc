#include "engine/execution/partitioned_cache.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/status.h"
#include "engine/execution/clock.h"
#include "engine/execution/copy_executable.h"
#include "engine/execution/graph_executable.h"
#include "engine/execution/slot_uses.h"
#include "engine/ir/content_hash.h"

namespace telegrad {
namespace {

// The device that all numbers mean; null where there is none such, and for one that runs nothing.
Device* OnlyDevice(std::span<Device* const> devices) {
  Device* only = nullptr;
  for (Device* const device : devices) {
    if (device == nullptr) continue;
    if (only != nullptr && device != only) return nullptr;
    only = device;
  }
  return only != nullptr && only->accepts() != ProgramLevel::kNothing ? only : nullptr;
}

std::string PartitionedKey(const Digest& hash, std::span<Device* const> devices,
                           std::span<const VarValue> variables) {
  std::string key;
  key.reserve(128);  // seldom more
  key = hash.view();
  for (Device* const device : devices) {
    StrAppend(&key, " ", device != nullptr ? device->name() : "-");
  }
  std::vector<VarValue> sorted(variables.begin(), variables.end());
  std::ranges::sort(sorted);
  for (const VarValue& v : sorted) StrAppend(&key, " ", v.id, "=", v.value);
  return key;
}

}  // namespace

std::vector<int64_t> DeviceNumbers(UOp sink) {
  std::set<int64_t> numbers;
  for (const uint32_t id : PostOrder(sink)) {
    const std::span<const int64_t> devices = sink.graph()->devices(id);
    numbers.insert(devices.begin(), devices.end());
  }
  return {numbers.begin(), numbers.end()};
}

PartitionedCache::PartitionedCache(ExecutableCache* parts, const Limits& limits)
    : parts_(*parts),
      limits_(limits),
      cache_({.max_entries = limits.executables,
              .account = parts->accounts().cache,
              .clock = parts->accounts().clock},
             BytesOf) {}

int64_t PartitionedCache::BytesOf(const Made& made) {
  return made.graph != nullptr ? made.graph->bytes : made.executable->kept_bytes();
}

absl::StatusOr<ExecutableCache::Result> PartitionedCache::Get(const Digest& hash,
                                                              const FrozenGraph& graph,
                                                              std::span<Device* const> devices,
                                                              Budget* budget,
                                                              std::span<const VarValue> variables) {
  Device* const only = OnlyDevice(devices);
  if (only != nullptr && only->accepts() == ProgramLevel::kBinary) {
    return parts_.Get(hash, graph, *only, budget, variables);
  }
  const Stopwatch all;
  LoweringTime lowered;
  const auto make = [&]() -> absl::StatusOr<std::shared_ptr<const Made>> {
    auto made = std::make_shared<Made>();
    if (only != nullptr) {
      TG_ASSIGN_OR_RETURN(made->executable, MakeOnDevice(hash, graph, *only, budget, variables));
    } else {
      TG_ASSIGN_OR_RETURN(made->several, Make(graph, devices, budget, variables, &lowered));
      made->executable = made->several;
    }
    return made;
  };
  TG_ASSIGN_OR_RETURN(const auto got,
                      cache_.Get(PartitionedKey(hash, devices, variables), budget, make));
  return ExecutableCache::Result{got.value->executable, !got.made, got.made ? all.ns() : 0,
                                 lowered};
}

// The graph travels once, whatever values its variables have.
absl::StatusOr<std::shared_ptr<const Executable>> PartitionedCache::MakeOnDevice(
    const Digest& hash, const FrozenGraph& graph, Device& device, Budget* budget,
    std::span<const VarValue> variables) {
  const auto load = [&]() -> absl::StatusOr<std::shared_ptr<const Made>> {
    auto made = std::make_shared<Made>();
    TG_ASSIGN_OR_RETURN(made->graph, LoadGraph(hash, graph, device));
    return made;
  };
  TG_ASSIGN_OR_RETURN(const auto loaded,
                      cache_.Get(StrCat(hash.view(), " loaded ", device.name()), budget, load));
  return MakeGraphExecutable(loaded.value->graph, variables, device);
}

std::shared_ptr<const Executable> PartitionedCache::Find(const Digest& hash,
                                                         std::span<Device* const> devices,
                                                         std::span<const VarValue> variables) {
  const Device* const only = OnlyDevice(devices);
  if (only != nullptr && only->accepts() == ProgramLevel::kBinary) {
    return parts_.Find(hash, *only, variables);
  }
  const auto known = cache_.Find(PartitionedKey(hash, devices, variables));
  return known == nullptr ? nullptr : known->executable;
}

void PartitionedCache::ReleaseMemory() {
  for (const std::shared_ptr<const Made>& made : cache_.All()) {
    if (made->several != nullptr) made->several->ReleaseMemory();
  }
}

absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> PartitionedCache::Make(
    const FrozenGraph& graph, std::span<Device* const> devices, Budget* budget,
    std::span<const VarValue> variables, LoweringTime* lowered) {
  // Devices by order of their first number.
  Placement placement;
  placement.all_reduce = limits_.all_reduce;
  std::vector<Device*> distinct;
  for (Device* const device : devices) {
    const auto at = std::ranges::find(distinct, device) - distinct.begin();
    placement.device_of.push_back(device != nullptr ? at : -1);
    if (device != nullptr && at == static_cast<int64_t>(distinct.size())) {
      distinct.push_back(device);
    }
  }
  const bool linked = std::ranges::any_of(
      distinct, [](const Device* device) { return device->link().has_value(); });
  if (linked && placement.all_reduce == AllReduceAlgorithm::kBySize) {
    placement.all_reduce = AllReduceAlgorithm::kBySizeOverLinks;
  }
  TG_ASSIGN_OR_RETURN(Partition partition,
                      PartitionGraph(graph.root(), variables, placement, budget));
  std::vector<std::shared_ptr<const Executable>> parts;
  for (const PartitionStep& step : partition.steps) {
    std::shared_ptr<const Executable>& part = parts.emplace_back();
    if (step.kind == PartitionStep::Kind::kTransfer) continue;
    Device& device = *distinct[static_cast<size_t>(step.device)];
    switch (device.accepts()) {
      case ProgramLevel::kTensorGraph: {
        TG_ASSIGN_OR_RETURN(
            part, MakeOnDevice(ContentHash(step.graph.root()), step.graph, device, budget, {}));
        break;
      }
      case ProgramLevel::kNothing: {
        TG_ASSIGN_OR_RETURN(part, MakeCopyExecutable(step.graph, device));
        break;
      }
      case ProgramLevel::kBinary: {
        TG_ASSIGN_OR_RETURN(auto made,
                            parts_.Get(ContentHash(step.graph.root()), step.graph, device, budget));
        part = std::move(made.executable);
        lowered->Cover(made.lowered);
        break;
      }
    }
  }
  return PartitionedExecutable::Create(std::move(partition), CollectSlotUses(graph.root()),
                                       std::move(distinct), std::move(parts), parts_.run_counters(),
                                       parts_.accounts().device_memory);
}

}  // namespace telegrad
