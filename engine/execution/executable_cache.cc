#include "engine/execution/executable_cache.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/execution/build.h"
#include "engine/execution/clock.h"
#include "engine/execution/kernel_cache.h"
#include "engine/execution/planned_executable.h"

namespace telegrad {
namespace {

// All that can change the code, but for what is fixed as long as the process lives.
std::string Key(const Digest& hash, const Device& device, std::span<const VarValue> variables) {
  std::string key = std::string(hash.view()) + device.name() + device.target().Key();
  std::vector<VarValue> sorted(variables.begin(), variables.end());
  std::ranges::sort(sorted);
  for (const VarValue& v : sorted) StrAppend(&key, " ", v.id, "=", v.value);
  return key;
}

}  // namespace

struct ExecutableCache::Impl {
  struct Entry {
    std::shared_ptr<const Executable> executable;  // null while it is being made
    std::list<std::string>::iterator age;
  };

  explicit Impl(const Limits& l) : limits(l), kernels(l.kernels) {}

  std::shared_ptr<DeviceRuns> RunsOf(Device& device) {
    const std::lock_guard lock(mutex);
    std::shared_ptr<DeviceRuns>& known = runs[device.name()];
    if (known == nullptr) known = std::make_shared<DeviceRuns>(&device);
    return known;
  }

  void Evict() {
    auto oldest = by_age.begin();
    while (static_cast<int64_t>(entries.size()) > limits.executables && oldest != by_age.end()) {
      const auto it = entries.find(*oldest);
      if (it->second.executable == nullptr) {
        ++oldest;
        continue;
      }
      entries.erase(it);
      oldest = by_age.erase(oldest);
    }
  }

  const Limits limits;
  KernelCache kernels;
  mutable std::mutex mutex;
  std::condition_variable made;
  absl::flat_hash_map<std::string, Entry> entries;
  std::list<std::string> by_age;                                       // least recently used first
  absl::flat_hash_map<std::string, std::shared_ptr<DeviceRuns>> runs;  // by device
  uint64_t hits = 0, misses = 0, schedule_ns = 0;
};

ExecutableCache::ExecutableCache(const Limits& limits) : impl_(std::make_unique<Impl>(limits)) {}
ExecutableCache::~ExecutableCache() = default;

absl::StatusOr<ExecutableCache::Result> ExecutableCache::Get(const Digest& hash,
                                                             const FrozenGraph& graph,
                                                             Device& device, Budget* budget,
                                                             std::span<const VarValue> variables) {
  const std::string key = Key(hash, device, variables);
  {
    std::unique_lock lock(impl_->mutex);
    while (true) {
      const auto it = impl_->entries.find(key);
      if (it == impl_->entries.end()) break;
      if (it->second.executable != nullptr) {
        ++impl_->hits;
        impl_->by_age.splice(impl_->by_age.end(), impl_->by_age, it->second.age);
        return Result{it->second.executable, true, 0};
      }
      impl_->made.wait(lock);
    }
    ++impl_->misses;
    impl_->by_age.push_back(key);
    impl_->entries.emplace(key, Impl::Entry{nullptr, std::prev(impl_->by_age.end())});
  }
  const Stopwatch all;
  auto built = Build(graph, variables, impl_->RunsOf(device), impl_->kernels, budget);
  const std::lock_guard lock(impl_->mutex);
  const auto it = impl_->entries.find(key);
  if (built.ok()) {
    impl_->schedule_ns += built->schedule_ns;
    it->second.executable = built->executable;
    impl_->Evict();
  } else {
    impl_->by_age.erase(it->second.age);
    impl_->entries.erase(it);
  }
  impl_->made.notify_all();
  if (!built.ok()) return built.status();
  return Result{std::move(built->executable), false, all.ns()};
}

std::shared_ptr<const Executable> ExecutableCache::Find(const Digest& hash, const Device& device,
                                                        std::span<const VarValue> variables) {
  const std::string key = Key(hash, device, variables);
  const std::lock_guard lock(impl_->mutex);
  const auto it = impl_->entries.find(key);
  if (it == impl_->entries.end() || it->second.executable == nullptr) return nullptr;
  ++impl_->hits;
  impl_->by_age.splice(impl_->by_age.end(), impl_->by_age, it->second.age);
  return it->second.executable;
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
  s.kernels_compiled = kernels.compiled;
  s.kernel_cache_hits = kernels.hits;
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
