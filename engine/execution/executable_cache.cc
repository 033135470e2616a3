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
#include "engine/ir/content_hash.h"
#include "engine/schedule/generalize.h"

namespace telegrad {
namespace {

// General forms of a graph for a part of its ranges; beyond, one for all of them.
constexpr int64_t kMaxRanged = 8;

// All that can change the code, but for the values of variables and what is fixed as long as the
// process lives.
std::string Key(const Digest& hash, const Device& device) {
  return StrCat(hash.view(), device.name(), device.target().Key());
}

std::vector<VarValue> Sorted(std::span<const VarValue> values) {
  std::vector<VarValue> out(values.begin(), values.end());
  std::ranges::sort(out);
  return out;
}

// That this form cannot be made is no reason that another cannot.
bool IsFinal(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

struct ExecutableCache::Impl {
  struct Form {
    std::string graph;  // the key of its family
    Guards guards;
    std::shared_ptr<const PlannedExecutable> executable;  // null while it is being made
  };
  using Forms = std::list<Form>;
  struct Family {
    std::vector<VarRange> variables;
    std::vector<int64_t> sizes;  // the ids of those that sizes depend on
    bool specialize_only = false;
    std::vector<Forms::iterator> forms = {};
  };

  Impl(const Limits& l, KernelServices services)
      : limits(l), kernels(l.kernels, std::move(services)), schedules(l.schedule_bytes) {}

  // With the lock:
  std::shared_ptr<DeviceRuns> RunsOf(Device& device) {
    std::shared_ptr<DeviceRuns>& known = runs[device.name()];
    if (known == nullptr) known = std::make_shared<DeviceRuns>(&device);
    return known;
  }
  Guards Choose(const Family& family, std::span<const VarValue> values) const;
  static std::optional<Forms::iterator> FormOf(const Family& family, const Guards& guards);
  Forms::iterator Add(const std::string& key, Family& family, Guards guards);
  void Erase(Forms::iterator form);
  void Evict();
  void Touch(Forms::iterator form) { forms.splice(forms.end(), forms, form); }

  const Limits limits;
  KernelCache kernels;
  ScheduleCache schedules;
  mutable std::mutex mutex;
  std::condition_variable made;
  Forms forms;  // least recently used first
  absl::flat_hash_map<std::string, Family> families;
  absl::flat_hash_map<std::string, std::shared_ptr<DeviceRuns>> runs;  // by device
  uint64_t hits = 0, misses = 0, general_forms = 0, schedule_ns = 0;
};

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
  forms.push_back({key, std::move(guards), nullptr});
  family.forms.push_back(std::prev(forms.end()));
  return family.forms.back();
}

void ExecutableCache::Impl::Erase(Forms::iterator form) {
  const auto family = families.find(form->graph);
  std::erase(family->second.forms, form);
  if (family->second.forms.empty()) families.erase(family);
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

ExecutableCache::ExecutableCache(const Limits& limits, KernelServices services)
    : impl_(std::make_unique<Impl>(limits, std::move(services))) {}
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
  const std::string key = Key(hash, device);
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
        impl_->made.wait(lock);
        continue;
      }
      ++impl_->hits;
      impl_->Touch(*known);
      const auto form = (*known)->executable;
      lock.unlock();
      TG_ASSIGN_OR_RETURN(auto executable, ForValues(form, guards.general, values));
      return Result{std::move(executable), true, 0};
    }
    const auto form = impl_->Add(key, family->second, guards);
    const std::shared_ptr<DeviceRuns> runs = impl_->RunsOf(device);
    ++impl_->misses;
    const auto make = [&] {
      const Guards now = form->guards;  // nobody else changes them
      lock.unlock();
      auto built =
          BuildForm(hash, graph, now, values, runs, impl_->schedules, impl_->kernels, budget);
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
    impl_->general_forms += general;
    impl_->schedule_ns += built->schedule_ns;
    form->executable = built->executable;
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
  const auto family = impl_->families.find(Key(hash, device));
  if (family == impl_->families.end()) return nullptr;
  const Guards guards = impl_->Choose(family->second, values);
  const auto known = Impl::FormOf(family->second, guards);
  if (!known || (*known)->executable == nullptr) return nullptr;
  ++impl_->hits;
  impl_->Touch(*known);
  const auto form = (*known)->executable;
  lock.unlock();
  const auto executable = ForValues(form, guards.general, values);
  return executable.ok() ? *executable : nullptr;
}

void ExecutableCache::ReleaseTemporaries(const Device& device) {
  const std::lock_guard lock(impl_->mutex);
  const auto it = impl_->runs.find(device.name());
  if (it != impl_->runs.end()) it->second->temporaries.Release();
}

ExecutableCache::Stats ExecutableCache::stats() const {
  const KernelStats kernels = impl_->kernels.stats();
  const std::lock_guard lock(impl_->mutex);
  Stats s;
  s.hits = impl_->hits;
  s.misses = impl_->misses;
  s.general_forms = impl_->general_forms;
  s.kernels_compiled = kernels.compiled;
  s.kernel_cache_hits = kernels.hits;
  s.schedule_hits = impl_->schedules.stats().hits;
  s.schedule_ns = impl_->schedule_ns;
  s.lower_ns = kernels.lower_ns;
  s.compile_ns = kernels.compile_ns;
  s.bounds = kernels.bounds;
  for (const auto& [name, runs] : impl_->runs) {
    s.submissions += runs->submissions.load(std::memory_order_relaxed);
    s.launches += runs->launches.load(std::memory_order_relaxed);
    s.segments += runs->segments.load(std::memory_order_relaxed);
  }
  return s;
}

}  // namespace telegrad
