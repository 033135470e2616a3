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
  std::string key(hash.view());
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

PartitionedCache::~PartitionedCache() {
  while (!entries_.empty()) DropOldestLocked();
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
  const std::string key = PartitionedKey(hash, devices, variables);
  {
    const std::lock_guard lock(mutex_);
    if (const Made* known = FindLocked(key)) {
      return ExecutableCache::Result{known->executable, true, 0};
    }
  }
  const Stopwatch all;
  Made made;
  if (only != nullptr) {
    TG_ASSIGN_OR_RETURN(made.executable, MakeOnDevice(hash, graph, *only, variables));
  } else {
    TG_ASSIGN_OR_RETURN(made.several, Make(graph, devices, budget, variables));
    made.executable = made.several;
  }
  made.bytes = made.executable->kept_bytes();
  return ExecutableCache::Result{Keep(key, std::move(made)).executable, false, all.ns()};
}

// The graph travels once, whatever values its variables have.
absl::StatusOr<std::shared_ptr<const Executable>> PartitionedCache::MakeOnDevice(
    const Digest& hash, const FrozenGraph& graph, Device& device,
    std::span<const VarValue> variables) {
  const std::string key = StrCat(hash.view(), " loaded ", device.name());
  Made made;
  {
    const std::lock_guard lock(mutex_);
    if (const Made* known = FindLocked(key)) made = *known;
  }
  if (made.graph == nullptr) {
    TG_ASSIGN_OR_RETURN(made.graph, LoadGraph(hash, graph, device));
    made.bytes = made.graph->bytes;
    made = Keep(key, std::move(made));
  }
  return MakeGraphExecutable(made.graph, variables, device);
}

// Whoever made the same meanwhile was first.
PartitionedCache::Made PartitionedCache::Keep(const std::string& key, Made made) {
  const std::lock_guard lock(mutex_);
  if (const Made* known = FindLocked(key)) return *known;
  by_age_.push_back(key);
  const CacheAccounts& accounts = parts_.accounts();
  entries_.emplace(key, Entry{made, made.bytes, accounts.Now(), std::prev(by_age_.end())});
  accounts.Charge(made.bytes);
  while (static_cast<int64_t>(entries_.size()) > limits_.executables) DropOldestLocked();
  return made;
}

std::shared_ptr<const Executable> PartitionedCache::Find(const Digest& hash,
                                                         std::span<Device* const> devices,
                                                         std::span<const VarValue> variables) {
  const Device* const only = OnlyDevice(devices);
  if (only != nullptr && only->accepts() == ProgramLevel::kBinary) {
    return parts_.Find(hash, *only, variables);
  }
  const std::lock_guard lock(mutex_);
  const Made* const known = FindLocked(PartitionedKey(hash, devices, variables));
  return known == nullptr ? nullptr : known->executable;
}

const PartitionedCache::Made* PartitionedCache::FindLocked(const std::string& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  by_age_.splice(by_age_.end(), by_age_, it->second.age);
  it->second.used = parts_.accounts().Now();
  return &it->second.made;
}

void PartitionedCache::DropOldestLocked() {
  const auto oldest = entries_.find(by_age_.front());
  parts_.accounts().Release(oldest->second.bytes);
  entries_.erase(oldest);
  by_age_.pop_front();
}

std::optional<uint64_t> PartitionedCache::OldestUse() const {
  const std::lock_guard lock(mutex_);
  if (by_age_.empty()) return std::nullopt;
  return entries_.at(by_age_.front()).used;
}

void PartitionedCache::DropOldest() {
  const std::lock_guard lock(mutex_);
  if (!by_age_.empty()) DropOldestLocked();
}

void PartitionedCache::ReleaseMemory() {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    if (entry.made.several != nullptr) entry.made.several->ReleaseMemory();
  }
}

absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> PartitionedCache::Make(
    const FrozenGraph& graph, std::span<Device* const> devices, Budget* budget,
    std::span<const VarValue> variables) {
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
  TG_ASSIGN_OR_RETURN(Partition partition,
                      PartitionGraph(graph.root(), variables, placement, budget));
  std::vector<std::shared_ptr<const Executable>> parts;
  for (const PartitionStep& step : partition.steps) {
    std::shared_ptr<const Executable>& part = parts.emplace_back();
    if (step.kind == PartitionStep::Kind::kTransfer) continue;
    Device& device = *distinct[static_cast<size_t>(step.device)];
    switch (device.accepts()) {
      case ProgramLevel::kTensorGraph: {
        TG_ASSIGN_OR_RETURN(part,
                            MakeOnDevice(ContentHash(step.graph.root()), step.graph, device, {}));
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
        break;
      }
    }
  }
  return PartitionedExecutable::Create(std::move(partition), CollectSlotUses(graph.root()),
                                       std::move(distinct), std::move(parts), parts_.run_counters(),
                                       parts_.accounts().device_memory);
}

}  // namespace telegrad
