// Forms, by graph and device; a form is an entry that several may wait for while one makes it.
#include "engine/execution/executable_cache.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/execution/bound_values.h"
#include "engine/execution/build.h"
#include "engine/execution/clock.h"
#include "engine/execution/forms.h"
#include "engine/execution/kernel_cache.h"
#include "engine/execution/planned_executable.h"
#include "engine/execution/shared_caches.h"
#include "engine/ir/content_hash.h"
#include "engine/schedule/generalize.h"

namespace telegrad {
namespace {

// General forms of a graph for a part of its ranges; beyond, one for all of them.
constexpr int64_t kMaxRanged = 8;

// Everything that can change the code, except for the values of variables and settings that are
// fixed while the process runs.
std::string ExecutableKey(const Digest& hash, const Device& device) {
  return StrCat(hash.view(), device.name(), device.target().Key());
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
  struct Form {
    std::string graph;  // the key of its family
    Guards guards;
    std::shared_ptr<const PlannedExecutable> executable = nullptr;  // null while it is being made
    int64_t bytes = 0;                                              // that are charged for it
    uint64_t used = 0;                                              // when it was last
  };
  using Forms = std::list<Form>;
  struct Family {
    std::vector<VarRange> variables;
    std::vector<int64_t> sizes;  // the ids of those that sizes depend on
    bool specialize_only = false;
    std::vector<Forms::iterator> forms = {};
  };

  Impl(const Limits& l, std::shared_ptr<SharedCaches> s, CacheAccounts a)
      : limits(l), shared(std::move(s)), accounts(std::move(a)) {}
  ~Impl() {
    for (const Form& form : forms) accounts.Release(form.bytes);
  }

  // With the lock:
  std::shared_ptr<DeviceRuns> RunsOf(Device& device);
  Guards Choose(const Family& family, std::span<const VarValue> values) const;
  static std::optional<Forms::iterator> FormOf(const Family& family, const Guards& guards);
  Forms::iterator Add(const std::string& key, Family& family, Guards guards);
  void Erase(Forms::iterator form);
  void Evict();
  Forms::iterator Oldest();
  void Touch(Forms::iterator form) {
    form->used = accounts.Now();
    forms.splice(forms.end(), forms, form);
  }

  const Limits limits;
  const std::shared_ptr<SharedCaches> shared;
  const CacheAccounts accounts;
  std::mutex mutex;
  std::condition_variable made;
  Forms forms;  // least recently used first
  absl::flat_hash_map<std::string, Family> families;
  absl::flat_hash_map<std::string, std::shared_ptr<DeviceRuns>> runs;  // by device
};

std::shared_ptr<DeviceRuns> ExecutableCache::Impl::RunsOf(Device& device) {
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

// The guards of the form that a run with `values` is to use, there or not.
Guards ExecutableCache::Impl::Choose(const Family& family, std::span<const VarValue> values) const {
  Guards special = Specialized(values);
  // Values that the graph does not allow: what makes the form says why.
  if (family.variables.empty() || family.specialize_only || !Holds(family.variables, values) ||
      FormOf(family, special)) {
    return special;
  }
  int64_t general = 0;
  for (const auto& form : family.forms) general += form->guards.general;
  if (static_cast<int64_t>(family.forms.size()) - general < limits.specializations) return special;
  Guards ranged = Ranged(family.variables, family.sizes, values);
  return general < kMaxRanged || FormOf(family, ranged) ? ranged : Whole(family.variables);
}

std::optional<ExecutableCache::Impl::Forms::iterator> ExecutableCache::Impl::FormOf(
    const Family& family, const Guards& guards) {
  const auto it = std::ranges::find_if(
      family.forms, [&](const Forms::iterator& form) { return form->guards == guards; });
  if (it == family.forms.end()) return std::nullopt;
  return *it;
}

ExecutableCache::Impl::Forms::iterator ExecutableCache::Impl::Add(const std::string& key,
                                                                  Family& family, Guards guards) {
  forms.push_back({.graph = key, .guards = std::move(guards)});
  family.forms.push_back(std::prev(forms.end()));
  return family.forms.back();
}

void ExecutableCache::Impl::Erase(Forms::iterator form) {
  const auto family = families.find(form->graph);
  std::erase(family->second.forms, form);
  if (family->second.forms.empty()) families.erase(family);
  accounts.Release(form->bytes);
  forms.erase(form);
}

// The least recently used go, those of a graph with many of them first.
void ExecutableCache::Impl::Evict() {
  const auto drop = [&](auto excess) {
    for (auto form = forms.begin(); form != forms.end();) {
      const auto oldest = form++;
      if (oldest->executable != nullptr && excess(*oldest)) Erase(oldest);
    }
  };
  const int64_t of_graph = limits.specializations + kMaxRanged + 1;
  drop([&](const Form& form) {
    return static_cast<int64_t>(families.at(form.graph).forms.size()) > of_graph;
  });
  drop([&](const Form&) { return static_cast<int64_t>(forms.size()) > limits.executables; });
}

// The least recently used of those that are made.
ExecutableCache::Impl::Forms::iterator ExecutableCache::Impl::Oldest() {
  return std::ranges::find_if(forms, [](const Form& form) { return form.executable != nullptr; });
}

ExecutableCache::ExecutableCache(const Limits& limits, KernelServices services)
    : ExecutableCache(limits, std::make_shared<SharedCaches>(limits, std::move(services)),
                      CacheAccounts()) {}
ExecutableCache::ExecutableCache(const Limits& limits, std::shared_ptr<SharedCaches> shared,
                                 CacheAccounts accounts)
    : impl_(std::make_unique<Impl>(limits, std::move(shared), std::move(accounts))) {}
ExecutableCache::~ExecutableCache() = default;

namespace {

// The form as an executable for these values.
absl::StatusOr<std::shared_ptr<const Executable>> ForValues(
    std::shared_ptr<const PlannedExecutable> form, bool general, std::span<const VarValue> values) {
  if (general) return BoundValues::Create(std::move(form), values);
  return std::shared_ptr<const Executable>(std::move(form));
}

absl::StatusOr<Built> BuildForm(const Digest& hash, const FrozenGraph& graph, const Guards& guards,
                                std::span<const VarValue> values, std::shared_ptr<DeviceRuns> runs,
                                ScheduleCache& schedules, KernelCache& kernels, Budget* budget) {
  if (!guards.general) {
    return Build(hash, graph, values, std::move(runs), schedules, kernels, budget);
  }
  TG_ASSIGN_OR_RETURN(const GeneralForm form, Generalize(graph.root(), guards.ranges, budget));
  return Build(ContentHash(form.graph.root()), form.graph, {}, std::move(runs), schedules, kernels,
               budget);
}

}  // namespace

absl::StatusOr<ExecutableCache::Result> ExecutableCache::Get(const Digest& hash,
                                                             const FrozenGraph& graph,
                                                             Device& device, Budget* budget,
                                                             std::span<const VarValue> variables) {
  const Stopwatch all;
  const std::string key = ExecutableKey(hash, device);
  const std::vector<VarValue> values = Sorted(variables);
  std::unique_lock lock(impl_->mutex);
  while (true) {
    auto family = impl_->families.find(key);
    if (family == impl_->families.end()) {
      lock.unlock();
      Impl::Family fresh{.variables = RangesOf(graph.root()),
                         .sizes = SizesOf(graph.root()),
                         .specialize_only = !device.host_visible()};
      lock.lock();
      family = impl_->families.try_emplace(key, std::move(fresh)).first;
    }
    const Guards guards = impl_->Choose(family->second, values);
    if (const auto known = Impl::FormOf(family->second, guards)) {
      if ((*known)->executable == nullptr) {
        TG_RETURN_IF_ERROR(budget->CheckTime());
        impl_->made.wait_for(lock, Budget::kTick);
        continue;
      }
      impl_->shared->counters.hits.fetch_add(1, std::memory_order_relaxed);
      impl_->Touch(*known);
      const auto form = (*known)->executable;
      lock.unlock();
      TG_ASSIGN_OR_RETURN(auto executable, ForValues(form, guards.general, values));
      return Result{std::move(executable), true, 0};
    }
    const auto form = impl_->Add(key, family->second, guards);
    const std::shared_ptr<DeviceRuns> runs = impl_->RunsOf(device);
    impl_->shared->counters.misses.fetch_add(1, std::memory_order_relaxed);
    const auto make = [&] {
      const Guards now = form->guards;  // no other thread changes them
      lock.unlock();
      auto built = BuildForm(hash, graph, now, values, runs, impl_->shared->schedules,
                             impl_->shared->kernels, budget);
      lock.lock();
      return built;
    };
    auto built = make();
    if (!built.ok() && guards.general) {
      impl_->families.at(key).specialize_only = true;
      if (!IsFinal(built.status())) {
        form->guards = Specialized(values);
        built = make();
      }
    }
    impl_->made.notify_all();
    if (!built.ok()) {
      impl_->Erase(form);
      return built.status();
    }
    const bool general = form->guards.general;
    SharedCaches::Counters& counters = impl_->shared->counters;
    counters.general_forms.fetch_add(general, std::memory_order_relaxed);
    counters.schedule_ns.fetch_add(built->schedule_ns, std::memory_order_relaxed);
    form->executable = built->executable;
    form->bytes = built->executable->kept_bytes();
    impl_->accounts.Charge(form->bytes);
    impl_->Touch(form);
    impl_->Evict();
    lock.unlock();
    TG_ASSIGN_OR_RETURN(auto executable, ForValues(built->executable, general, values));
    return Result{std::move(executable), false, all.ns()};
  }
}

std::shared_ptr<const Executable> ExecutableCache::Find(const Digest& hash, const Device& device,
                                                        std::span<const VarValue> variables) {
  const std::vector<VarValue> values = Sorted(variables);
  std::unique_lock lock(impl_->mutex);
  const auto family = impl_->families.find(ExecutableKey(hash, device));
  if (family == impl_->families.end()) return nullptr;
  const Guards guards = impl_->Choose(family->second, values);
  const auto known = Impl::FormOf(family->second, guards);
  if (!known || (*known)->executable == nullptr) return nullptr;
  impl_->shared->counters.hits.fetch_add(1, std::memory_order_relaxed);
  impl_->Touch(*known);
  const auto form = (*known)->executable;
  lock.unlock();
  const auto executable = ForValues(form, guards.general, values);
  return executable.ok() ? *executable : nullptr;
}

void ExecutableCache::ReleaseTemporaries() {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [name, runs] : impl_->runs) runs->temporaries->Release();
}

std::optional<uint64_t> ExecutableCache::OldestUse() const {
  const std::lock_guard lock(impl_->mutex);
  const auto oldest = impl_->Oldest();
  if (oldest == impl_->forms.end()) return std::nullopt;
  return oldest->used;
}

void ExecutableCache::DropOldest() {
  const std::lock_guard lock(impl_->mutex);
  const auto oldest = impl_->Oldest();
  if (oldest != impl_->forms.end()) impl_->Erase(oldest);
}

const CacheAccounts& ExecutableCache::accounts() const { return impl_->accounts; }
const std::shared_ptr<RunCounters>& ExecutableCache::run_counters() const {
  return impl_->shared->runs;
}

ExecutableCache::Stats ExecutableCache::stats() const { return impl_->shared->stats(); }

}  // namespace telegrad
