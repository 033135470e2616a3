#include "engine/execution/partitioned_cache.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/status.h"
#include "engine/execution/clock.h"
#include "engine/execution/copy_executable.h"
#include "engine/execution/forms.h"
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

std::string PartitionedKey(const Digest& hash, std::span<Device* const> devices) {
  std::string key;
  key.reserve(128);  // seldom more
  key = hash.view();
  for (Device* const device : devices) {
    StrAppend(&key, " ", device != nullptr ? device->name() : "-");
  }
  return key;
}

std::string KeyForAll(std::string key) { return std::move(key) + " for all"; }
std::string KeyFor(std::string key, std::span<const VarValue> values) {
  for (const VarValue& v : values) StrAppend(&key, " ", v.id, "=", v.value);
  return key;
}

std::vector<VarValue> SortedById(std::span<const VarValue> values) {
  std::vector<VarValue> out(values.begin(), values.end());
  std::ranges::sort(out);
  return out;
}

// The devices that numbers mean, by order of their first number, and where the numbers are.
struct Placed {
  Placement placement;
  std::vector<Device*> devices;
};

Placed Place(std::span<Device* const> devices, AllReduceAlgorithm all_reduce) {
  Placed out;
  out.placement.all_reduce = all_reduce;
  for (Device* const device : devices) {
    const auto at = std::ranges::find(out.devices, device) - out.devices.begin();
    out.placement.device_of.push_back(device != nullptr ? at : -1);
    if (device != nullptr && at == std::ssize(out.devices)) out.devices.push_back(device);
  }
  const bool linked = std::ranges::any_of(
      out.devices, [](const Device* device) { return device->link().has_value(); });
  if (linked && all_reduce == AllReduceAlgorithm::kBySize) {
    out.placement.all_reduce = AllReduceAlgorithm::kBySizeOverLinks;
  }
  return out;
}

// Whether the error is about a partition for all values, and not about this call.
bool IsOfTheGraph(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsInvalidArgument(status);
}

// Whether a partition for the values of a run may do what one for all could not: it needs less, and
// this call may still work.
bool MayNeedLess(const absl::Status& status, Budget* budget) {
  if (!absl::IsResourceExhausted(status) && !absl::IsDeadlineExceeded(status)) return false;
  return budget->CheckTime().ok() && budget->SpendNodes(0).ok() && budget->SpendSteps(0).ok() &&
         budget->SpendRewrites(0).ok() && budget->SpendKernels(0).ok() && budget->SpendCode(0).ok();
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
  if (made.graph != nullptr) return made.graph->bytes;
  if (made.all == nullptr) return made.executable->kept_bytes();
  const ForAll& all = *made.all;
  const size_t bytes = sizeof(all) + all.none.size() + all.parts.size() * sizeof(all.parts[0]) +
                       all.variables.size() * sizeof(all.variables[0]);
  return static_cast<int64_t>(bytes) + (all.plan != nullptr ? all.plan->kept_bytes() : 0);
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
  Lowered lowered;
  const auto result = [&](std::shared_ptr<const Executable> executable) {
    return ExecutableCache::Result{std::move(executable), lowered.cached,
                                   lowered.cached ? 0 : all.ns(), lowered.time};
  };
  const auto got = [&](const std::string& key, absl::FunctionRef<absl::StatusOr<Made>()> make) {
    return cache_.Get(key, budget, [&]() -> absl::StatusOr<std::shared_ptr<const Made>> {
      lowered.cached = false;
      TG_ASSIGN_OR_RETURN(Made made, make());
      return std::make_shared<const Made>(std::move(made));
    });
  };
  const std::string key = PartitionedKey(hash, devices);
  const std::vector<VarValue> values = SortedById(variables);
  std::string reason;  // why the partition is for these values alone
  // Values that the graph does not allow: what puts them in says why.
  if (only == nullptr && !values.empty() && Holds(RangesOf(graph.root()), values)) {
    const auto made = got(KeyForAll(key), [&] { return MakeForAll(graph, devices, budget); });
    if (!made.ok() && !MayNeedLess(made.status(), budget)) return made.status();
    reason = made.ok() ? made->value->all->none : std::string(made.status().message());
    if (made.ok() && made->value->all->plan != nullptr) {
      const auto get = [&](const Part& part, const FrozenGraph& of, std::span<const VarValue> its) {
        return GetPart(part.hash, of, *part.device, budget, its, &lowered);
      };
      const auto bound = Bind(*made->value->all, values, /*may_wait=*/true, get);
      absl::Status status = bound.status();
      if (status.ok()) status = Fit(**bound, /*release=*/true);
      if (status.ok()) return result(*bound);
      if (!MayNeedLess(status, budget)) return status;
      reason = std::string(status.message());
    }
  }
  const auto make = [&]() -> absl::StatusOr<Made> {
    if (only == nullptr) return MakeFor(graph, devices, reason, values, budget, &lowered);
    Made made;
    TG_ASSIGN_OR_RETURN(auto loaded, Load(hash, graph, *only, budget));
    TG_ASSIGN_OR_RETURN(made.executable, MakeGraphExecutable(std::move(loaded), values, *only,
                                                             /*may_wait=*/true));
    return made;
  };
  TG_ASSIGN_OR_RETURN(const auto made, got(KeyFor(key, values), make));
  return result(made.value->executable);
}

std::shared_ptr<const Executable> PartitionedCache::Find(const Digest& hash,
                                                         std::span<Device* const> devices,
                                                         std::span<const VarValue> variables) {
  const Device* const only = OnlyDevice(devices);
  if (only != nullptr && only->accepts() == ProgramLevel::kBinary) {
    return parts_.Find(hash, *only, variables);
  }
  const std::string key = PartitionedKey(hash, devices);
  const std::vector<VarValue> values = SortedById(variables);
  if (only == nullptr && !values.empty()) {
    const auto known = cache_.Find(KeyForAll(key));
    if (known != nullptr && known->all->plan != nullptr && Holds(known->all->variables, values)) {
      const auto find =
          [&](const Part& part, const FrozenGraph&,
              std::span<const VarValue> its) -> absl::StatusOr<std::shared_ptr<const Executable>> {
        return parts_.Find(part.hash, *part.device, its);
      };
      auto bound = Bind(*known->all, values, /*may_wait=*/false, find);
      if (bound.ok() && *bound != nullptr && Fit(**bound, /*release=*/false).ok())
        return *std::move(bound);
    }
  }
  const auto known = cache_.Find(KeyFor(key, values));
  return known == nullptr ? nullptr : known->executable;
}

void PartitionedCache::ReleaseMemory() {
  for (const std::shared_ptr<const Made>& made : cache_.All()) {
    if (made->plan != nullptr) made->plan->ReleaseMemory();
    if (made->all != nullptr && made->all->plan != nullptr) made->all->plan->ReleaseMemory();
  }
}

// A graph travels once, whatever values its variables have.
absl::StatusOr<std::shared_ptr<const GraphOnDevice>> PartitionedCache::Load(
    const Digest& hash, const FrozenGraph& graph, Device& device, Budget* budget) {
  const auto load = [&]() -> absl::StatusOr<std::shared_ptr<const Made>> {
    auto made = std::make_shared<Made>();
    TG_ASSIGN_OR_RETURN(made->graph, LoadGraph(hash, graph, device));
    return made;
  };
  TG_ASSIGN_OR_RETURN(const auto loaded,
                      cache_.Get(StrCat(hash.view(), " loaded ", device.name()), budget, load));
  return loaded.value->graph;
}

absl::StatusOr<std::shared_ptr<const Executable>> PartitionedCache::GetPart(
    const Digest& hash, const FrozenGraph& graph, Device& device, Budget* budget,
    std::span<const VarValue> values, Lowered* lowered) {
  TG_ASSIGN_OR_RETURN(auto made, parts_.Get(hash, graph, device, budget, values));
  lowered->cached &= made.cached;
  lowered->time.Cover(made.lowered);
  return std::move(made.executable);
}

absl::StatusOr<std::shared_ptr<const PartitionedPlan>> PartitionedCache::Plan(
    Partition partition, const FrozenGraph& graph, std::vector<Device*> devices,
    std::string reason) const {
  return PartitionedPlan::Create(std::move(partition), CollectSlotUses(graph.root()),
                                 std::move(devices), std::move(reason), parts_.run_counters(),
                                 parts_.accounts().device_memory);
}

absl::StatusOr<PartitionedCache::Made> PartitionedCache::MakeFor(const FrozenGraph& graph,
                                                                 std::span<Device* const> devices,
                                                                 std::string reason,
                                                                 std::span<const VarValue> values,
                                                                 Budget* budget, Lowered* lowered) {
  Placed placed = Place(devices, limits_.all_reduce);
  TG_ASSIGN_OR_RETURN(Partition partition,
                      PartitionGraph(graph.root(), values, placed.placement, budget));
  parts_.run_counters()->partitions.fetch_add(1, std::memory_order_relaxed);
  if (!values.empty()) {
    parts_.run_counters()->partitions_for_values.fetch_add(1, std::memory_order_relaxed);
    reason = StrCat("the graph is partitioned for each set of values of its variables: ", reason);
  }
  std::vector<std::shared_ptr<const Executable>> parts;
  for (const PartitionStep& step : partition.steps) {
    std::shared_ptr<const Executable>& part = parts.emplace_back();
    if (step.kind == PartitionStep::Kind::kTransfer) continue;
    Device& device = *placed.devices[static_cast<size_t>(step.device)];
    const auto hash = [&] { return ContentHash(step.graph.root()); };
    switch (device.accepts()) {
      case ProgramLevel::kTensorGraph: {
        TG_ASSIGN_OR_RETURN(auto loaded, Load(hash(), step.graph, device, budget));
        TG_ASSIGN_OR_RETURN(part, MakeGraphExecutable(std::move(loaded), {}, device,
                                                      /*may_wait=*/true));
        break;
      }
      case ProgramLevel::kNothing: {
        TG_ASSIGN_OR_RETURN(part, MakeCopyExecutable(step.graph, device));
        break;
      }
      case ProgramLevel::kBinary: {
        TG_ASSIGN_OR_RETURN(part, GetPart(hash(), step.graph, device, budget, {}, lowered));
        break;
      }
    }
  }
  Made made;
  TG_ASSIGN_OR_RETURN(
      made.plan, Plan(std::move(partition), graph, std::move(placed.devices), std::move(reason)));
  TG_ASSIGN_OR_RETURN(made.executable,
                      PartitionedExecutable::Create(made.plan, std::move(parts), {}));
  return made;
}

// Nothing is compiled yet: that is for the values of a run to decide, see ExecutableCache.
absl::StatusOr<PartitionedCache::Made> PartitionedCache::MakeForAll(
    const FrozenGraph& graph, std::span<Device* const> devices, Budget* budget) {
  const auto make = [&](ForAll* all) -> absl::Status {
    Placed placed = Place(devices, limits_.all_reduce);
    TG_ASSIGN_OR_RETURN(Partition partition,
                        PartitionForAll(graph.root(), placed.placement, budget));
    for (const PartitionStep& step : partition.steps) {
      Part& part = all->parts.emplace_back();
      if (step.kind == PartitionStep::Kind::kTransfer) continue;
      part.device = placed.devices[static_cast<size_t>(step.device)];
      part.hash = ContentHash(step.graph.root());
      for (const VarRange& range : RangesOf(step.graph.root())) part.variables.push_back(range.id);
      if (part.device->accepts() == ProgramLevel::kTensorGraph) {
        TG_ASSIGN_OR_RETURN(part.graph, Load(part.hash, step.graph, *part.device, budget));
      } else if (part.device->accepts() == ProgramLevel::kNothing) {
        if (!part.variables.empty()) {
          return Unimplemented("copies on ", part.device->name(), " depend on variables");
        }
        TG_ASSIGN_OR_RETURN(part.copies, MakeCopyExecutable(step.graph, *part.device));
      }
    }
    auto plan = Plan(std::move(partition), graph, std::move(placed.devices), {});
    if (absl::IsResourceExhausted(plan.status())) return Unimplemented(plan.status().message());
    TG_RETURN_IF_ERROR(plan.status());
    all->plan = *std::move(plan);
    return absl::OkStatus();
  };
  auto all = std::make_shared<ForAll>();
  all->variables = RangesOf(graph.root());
  const absl::Status status = make(all.get());
  if (!status.ok() && !IsOfTheGraph(status)) return status;
  if (!status.ok()) {
    all->parts.clear();
    all->none = std::string(status.message());
  } else {
    parts_.run_counters()->partitions.fetch_add(1, std::memory_order_relaxed);
  }
  Made made;
  made.all = std::move(all);
  return made;
}

absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> PartitionedCache::Bind(
    const ForAll& all, std::span<const VarValue> values, bool may_wait, PartFor part_for) {
  std::vector<std::shared_ptr<const Executable>> parts;
  const std::vector<PartitionStep>& steps = all.plan->partition().steps;
  std::vector<VarValue> own;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Part& part = all.parts[i];
    std::shared_ptr<const Executable>& made = parts.emplace_back(part.copies);
    if (part.device == nullptr || made != nullptr) continue;
    own.clear();
    for (const VarValue& v : values) {
      if (std::ranges::binary_search(part.variables, v.id)) own.push_back(v);
    }
    if (part.graph != nullptr) {
      TG_ASSIGN_OR_RETURN(made, MakeGraphExecutable(part.graph, own, *part.device, may_wait));
      if (made == nullptr) return nullptr;
      continue;
    }
    TG_ASSIGN_OR_RETURN(made, part_for(part, steps[i].graph, own));
    if (made == nullptr) return nullptr;
  }
  return PartitionedExecutable::Create(all.plan, std::move(parts), values);
}

absl::Status PartitionedCache::Fit(const PartitionedExecutable& bound, bool release) {
  const int64_t bytes = bound.cost().peak_bytes();
  if (limits_.run_bytes > 0 && bytes > limits_.run_bytes) {
    return ResourceExhausted("with the bounds of its sizes a run needs ", bytes,
                             " bytes at a time, over its limit of ", limits_.run_bytes);
  }
  absl::Status status = bound.plan()->Reserve();
  if (!absl::IsResourceExhausted(status) || !release) return status;
  ReleaseMemory();
  parts_.ReleaseTemporaries();
  return bound.plan()->Reserve();
}

}  // namespace telegrad
