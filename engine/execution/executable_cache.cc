// Forms, by graph, device and guards; and, by graph and device, the forms that there are.
#include "engine/execution/executable_cache.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/mutex.h"
#include "engine/base/once_cache.h"
#include "engine/base/status.h"
#include "engine/execution/bound_values.h"
#include "engine/execution/build.h"
#include "engine/execution/clock.h"
#include "engine/execution/forms.h"
#include "engine/execution/kernel_cache.h"
#include "engine/execution/planned_executable.h"
#include "engine/execution/shared_caches.h"
#include "engine/execution/value_uses.h"
#include "engine/execution/whole_form.h"
#include "engine/ir/content_hash.h"
#include "engine/rewrite/generalize.h"

namespace telegrad {
namespace {

// General forms of a graph for a part of its ranges; beyond, one for all of them.
constexpr int64_t kMaxRanged = 8;

// Everything that can change the code, except for the values of variables and settings that are
// fixed while the process runs.
std::string ExecutableKey(const Digest& hash, const Device& device) {
  return StrCat(hash.view(), device.name(), device.target().Key());
}

std::string FormKey(const std::string& graph, const Guards& guards) {
  std::string key = graph;
  for (const VarRange& r : guards.ranges) {
    StrAppend(&key, guards.general ? " in " : " is ", r.id, " ", r.min, " ", r.max, " ",
              r.multiple);
  }
  return key;
}

std::vector<VarValue> Sorted(std::span<const VarValue> values) {
  std::vector<VarValue> out(values.begin(), values.end());
  std::ranges::sort(out);
  return out;
}

// Whether the error ends the call; after other errors, another form may still be made.
bool IsFinal(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

struct ExecutableCache::Impl {
  // What is known of a graph with variables on a device, whichever form a run uses.
  struct Family {
    std::vector<VarRange> variables;
    std::vector<int64_t> sizes;  // the ids of those that sizes depend on
    WholeForm whole;
    mutable Mutex mutex;
    mutable ValueUses uses TG_GUARDED_BY(mutex) = {};  // of general forms
    mutable bool specialize_only TG_GUARDED_BY(mutex) = false;
    // That were made; some may have been evicted.
    mutable std::vector<Guards> forms TG_GUARDED_BY(mutex) = {};
  };
  using Form = OnceCache<PlannedExecutable>::Got;

  Impl(const Limits& l, std::shared_ptr<SharedCaches> s, CacheAccounts a)
      : limits(l),
        shared(std::move(s)),
        accounts(std::move(a)),
        forms({.max_entries = l.executables, .account = accounts.cache, .clock = accounts.clock},
              [](const PlannedExecutable& form) { return form.kept_bytes(); }),
        families({.max_entries = l.executables}, [](const Family&) { return int64_t{0}; }) {}

  std::shared_ptr<DeviceRuns> RunsOf(Device& device);
  Guards Choose(const Family& family, const std::string& key,
                std::span<const VarValue> values) const;
  // `family`: null without values.
  absl::StatusOr<Form> MakeForm(const Digest& hash, const FrozenGraph& graph, Device& device,
                                const Family* family, const std::string& key, const Guards& guards,
                                std::span<const VarValue> values, Budget* budget,
                                LoweringTime* lowered);
  void Note(const Family& family, const std::string& key, const Guards& guards);
  // What is known of a graph that is run for the first time.
  absl::StatusOr<std::shared_ptr<const Family>> Describe(const Digest& hash,
                                                         const FrozenGraph& graph, Device& device,
                                                         Budget* budget);
  // The form as an executable for these values.
  absl::StatusOr<std::shared_ptr<const Executable>> ForValues(
      const Family* family, std::shared_ptr<const PlannedExecutable> form, const Guards& guards,
      const std::vector<VarValue>& values);
  // The form if it is there, and no better list of moves has been found for a kernel of it since:
  // else it is made anew by the next run, whose kernels are compiled by then.
  std::shared_ptr<const PlannedExecutable> FindFresh(const std::string& form_key);
  // Drops from the list what has been evicted.
  void Prune(const Family& family, const std::string& key) const TG_REQUIRES(family.mutex);

  const Limits limits;
  const std::shared_ptr<SharedCaches> shared;
  const CacheAccounts accounts;
  OnceCache<PlannedExecutable> forms;
  OnceCache<Family> families;
  mutable Mutex runs_mutex;
  // By device.
  absl::flat_hash_map<std::string, std::shared_ptr<DeviceRuns>> runs TG_GUARDED_BY(runs_mutex);
};

std::shared_ptr<DeviceRuns> ExecutableCache::Impl::RunsOf(Device& device) {
  const MutexLock lock(runs_mutex);
  std::shared_ptr<DeviceRuns>& known = runs[device.name()];
  if (known == nullptr) {
    auto temporaries =
        std::make_shared<Temporaries>(&device, accounts.device_memory, shared->temporaries);
    shared->temporaries->Add(temporaries);
    known = std::make_shared<DeviceRuns>(
        DeviceRuns{device, accounts.device_memory, std::move(temporaries), shared->runs});
  }
  return known;
}

std::shared_ptr<const PlannedExecutable> ExecutableCache::Impl::FindFresh(
    const std::string& form_key) {
  auto form = forms.Find(form_key);
  FoundMoves* const found = shared->kernels.found();
  if (form == nullptr || found == nullptr || !form->IsOutdated(*found)) return form;
  forms.Erase(form_key);
  return nullptr;
}

void ExecutableCache::Impl::Prune(const Family& family, const std::string& key) const {
  std::erase_if(family.forms,
                [&](const Guards& guards) { return !forms.Contains(FormKey(key, guards)); });
}

// The guards of the form that a run with `values` is to use, there or not.
Guards ExecutableCache::Impl::Choose(const Family& family, const std::string& key,
                                     std::span<const VarValue> values) const {
  Guards special = Specialized(values);
  const MutexLock lock(family.mutex);
  // Values that the graph does not allow: what makes the form says why.
  if (family.variables.empty() || family.specialize_only || !Holds(family.variables, values) ||
      forms.Contains(FormKey(key, special))) {
    return special;
  }
  Prune(family, key);
  const int64_t general = std::ranges::count_if(family.forms, &Guards::general);
  const bool room = std::ssize(family.forms) - general < limits.specializations;
  if (room && family.uses.AreFrequent({values.begin(), values.end()})) return special;
  if (family.whole.serves) return Whole(family.variables);
  Guards ranged = Ranged(family.variables, family.sizes, values);
  return general < kMaxRanged || forms.Contains(FormKey(key, ranged)) ? ranged
                                                                      : Whole(family.variables);
}

// Adds a form that was made; of a graph with many of them, the least recently used goes.
void ExecutableCache::Impl::Note(const Family& family, const std::string& key,
                                 const Guards& guards) {
  const MutexLock lock(family.mutex);
  Prune(family, key);
  if (std::ranges::find(family.forms, guards) == family.forms.end()) {
    family.forms.push_back(guards);
  }
  if (std::ssize(family.forms) <= limits.specializations + kMaxRanged + 1) return;
  const auto oldest = std::ranges::min_element(family.forms, {}, [&](const Guards& form) {
    return forms.LastUse(FormKey(key, form)).value_or(std::numeric_limits<uint64_t>::max());
  });
  forms.Erase(FormKey(key, *oldest));
  family.forms.erase(oldest);
}

ExecutableCache::ExecutableCache(const Limits& limits, KernelServices services)
    : ExecutableCache(limits, std::make_shared<SharedCaches>(limits, std::move(services)),
                      CacheAccounts()) {}
ExecutableCache::ExecutableCache(const Limits& limits, std::shared_ptr<SharedCaches> shared,
                                 CacheAccounts accounts)
    : impl_(std::make_unique<Impl>(limits, std::move(shared), std::move(accounts))) {}
ExecutableCache::~ExecutableCache() = default;

namespace {

absl::StatusOr<Built> BuildForm(const Digest& hash, const FrozenGraph& graph, const Guards& guards,
                                std::span<const VarValue> values, std::shared_ptr<DeviceRuns> runs,
                                ScheduleCache& schedules, KernelCache& kernels, Budget* budget) {
  if (!guards.general) {
    return Build(hash, graph, values, std::move(runs), schedules, kernels, budget);
  }
  TG_ASSIGN_OR_RETURN(const GeneralForm form, Generalize(graph.root(), guards.ranges, budget));
  return Build(ContentHash(form.graph.root()), form.graph, {}, std::move(runs), schedules, kernels,
               budget, guards.ranges);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ExecutableCache::Impl::Family>>
ExecutableCache::Impl::Describe(const Digest& hash, const FrozenGraph& graph, Device& device,
                                Budget* budget) {
  auto made = std::make_shared<Family>();
  made->variables = RangesOf(graph.root());
  made->sizes = SizesOf(graph.root());
  const MutexLock lock(made->mutex);
  made->specialize_only = made->variables.empty();
  if (made->specialize_only) return made;
  const absl::StatusOr<WholeForm> whole =
      DescribeWholeForm(hash, graph, made->variables, device, shared->schedules, budget);
  if (!whole.ok() && IsFinal(whole.status())) return whole.status();
  made->specialize_only = !whole.ok();
  if (whole.ok()) made->whole = *whole;
  return made;
}

absl::StatusOr<std::shared_ptr<const Executable>> ExecutableCache::Impl::ForValues(
    const Family* family, std::shared_ptr<const PlannedExecutable> form, const Guards& guards,
    const std::vector<VarValue>& values) {
  if (!guards.general) return std::shared_ptr<const Executable>(std::move(form));
  {
    const MutexLock lock(family->mutex);
    family->uses.Add(values);
  }
  return BoundValues::Create(std::move(form), guards.ranges, values,
                             family->whole.serves ? family->whole.least_share : 1);
}

absl::StatusOr<ExecutableCache::Impl::Form> ExecutableCache::Impl::MakeForm(
    const Digest& hash, const FrozenGraph& graph, Device& device, const Family* family,
    const std::string& key, const Guards& guards, std::span<const VarValue> values, Budget* budget,
    LoweringTime* lowered) {
  using FormPtr = std::shared_ptr<const PlannedExecutable>;
  SharedCaches::Counters& counters = shared->counters;
  const auto make = [&]() -> absl::StatusOr<FormPtr> {
    counters.misses.fetch_add(1, std::memory_order_relaxed);
    auto built = BuildForm(hash, graph, guards, values, RunsOf(device), shared->schedules,
                           shared->kernels, budget);
    if (!built.ok()) {
      if (guards.general && !absl::IsCancelled(built.status())) {
        const MutexLock lock(family->mutex);
        family->specialize_only = true;
      }
      return built.status();
    }
    counters.general_forms.fetch_add(guards.general, std::memory_order_relaxed);
    counters.schedule_ns.fetch_add(built->schedule_ns, std::memory_order_relaxed);
    lowered->Cover(built->lowered);
    return std::move(built->executable);
  };
  if (shared->kernels.found() != nullptr) FindFresh(FormKey(key, guards));
  auto form = forms.Get(FormKey(key, guards), budget, make);
  if (form.ok() && !form->made) counters.hits.fetch_add(1, std::memory_order_relaxed);
  return form;
}

absl::StatusOr<ExecutableCache::Result> ExecutableCache::Get(const Digest& hash,
                                                             const FrozenGraph& graph,
                                                             Device& device, Budget* budget,
                                                             std::span<const VarValue> variables) {
  const Stopwatch all;
  const std::string key = ExecutableKey(hash, device);
  const std::vector<VarValue> values = Sorted(variables);
  OnceCache<Impl::Family>::Got family;
  Guards guards = Specialized(values);
  if (!values.empty()) {  // else there is one form
    const auto describe = [&] { return impl_->Describe(hash, graph, device, budget); };
    TG_ASSIGN_OR_RETURN(family, impl_->families.Get(key, budget, describe));
    guards = impl_->Choose(*family.value, key, values);
  }
  LoweringTime lowered;
  const auto make = [&] {
    return impl_->MakeForm(hash, graph, device, family.value.get(), key, guards, values, budget,
                           &lowered);
  };
  absl::StatusOr<Impl::Form> form = make();
  if (!form.ok() && guards.general && !IsFinal(form.status())) {
    guards = Specialized(values);
    form = make();
  }
  if (!form.ok()) return form.status();
  if (form->made && family.value != nullptr) impl_->Note(*family.value, key, guards);
  TG_ASSIGN_OR_RETURN(auto executable,
                      impl_->ForValues(family.value.get(), form->value, guards, values));
  return Result{std::move(executable), !form->made, form->made ? all.ns() : 0, lowered};
}

std::shared_ptr<const Executable> ExecutableCache::Find(const Digest& hash, const Device& device,
                                                        std::span<const VarValue> variables) {
  const std::string key = ExecutableKey(hash, device);
  const std::vector<VarValue> values = Sorted(variables);
  Guards guards = Specialized(values);
  auto form = impl_->FindFresh(FormKey(key, guards));
  std::shared_ptr<const Impl::Family> family;
  if (form == nullptr && !values.empty()) {
    family = impl_->families.Find(key);
    if (family == nullptr) return nullptr;
    guards = impl_->Choose(*family, key, values);
    form = impl_->FindFresh(FormKey(key, guards));
  }
  if (form == nullptr) return nullptr;
  impl_->shared->counters.hits.fetch_add(1, std::memory_order_relaxed);
  const auto executable = impl_->ForValues(family.get(), std::move(form), guards, values);
  return executable.ok() ? *executable : nullptr;
}

void ExecutableCache::ReleaseTemporaries() {
  std::vector<std::shared_ptr<DeviceRuns>> all;
  {
    const MutexLock lock(impl_->runs_mutex);
    for (const auto& [name, runs] : impl_->runs) all.push_back(runs);
  }
  for (const auto& runs : all) runs->temporaries->Release();
}

std::optional<uint64_t> ExecutableCache::OldestUse() const { return impl_->forms.OldestUse(); }
void ExecutableCache::DropOldest() { impl_->forms.DropOldest(); }

const CacheAccounts& ExecutableCache::accounts() const { return impl_->accounts; }
const std::shared_ptr<RunCounters>& ExecutableCache::run_counters() const {
  return impl_->shared->runs;
}

ExecutableCache::Stats ExecutableCache::stats() const { return impl_->shared->stats(); }

}  // namespace telegrad
