// Of the repository, what makes room: models that nobody has asked for the longest time go, and
// come back with the next request.
#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "engine/base/status.h"
#include "server/admin/log.h"
#include "server/serving/repository.h"

namespace telegrad {
namespace {

// How long an eviction waits for answers that are being sent and hold the weights meanwhile. A
// client that does not take its answer holds them longer; then the next model goes, too.
constexpr std::chrono::seconds kLongestWait{1};

}  // namespace

bool ModelRepository::EvictOne(const std::string& for_name) {
  std::map<int64_t, std::shared_ptr<ServedModel>> dropped;  // without the lock
  std::vector<std::shared_future<void>> gone;
  std::string name;
  {
    const MutexLock lock(mutex_);
    Entry* oldest = nullptr;
    uint64_t oldest_ms = UINT64_MAX;
    for (auto& [candidate, entry] : entries_) {
      if (candidate == for_name || entry.busy || entry.versions.empty()) continue;
      uint64_t used_ms = 0;
      for (const auto& [version, model] : entry.versions) {
        used_ms = std::max(used_ms, model->IdleSince().value_or(UINT64_MAX));
      }
      if (used_ms >= oldest_ms) continue;
      oldest = &entry;
      oldest_ms = used_ms;
      name = candidate;
    }
    if (oldest == nullptr) return false;
    // Which one is for the log: whoever may use this model perhaps may not know of the other.
    oldest->reason = "unloaded to make room for another model; the next request loads it again";
    for (auto& [version, state] : oldest->states) state = {"UNAVAILABLE", oldest->reason};
    oldest->stamps.clear();
    oldest->evicted = true;
    dropped.swap(oldest->versions);
  }
  for (const auto& [version, model] : dropped) {
    for (auto& each : model->Gone()) gone.push_back(std::move(each));
  }
  dropped.clear();
  // A request that was answered a moment ago may not have given back what it used.
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  for (const auto& each : gone) each.wait_until(deadline);
  Log(LogLevel::kInfo, "model_evicted", {{"name", name}, {"for", for_name}});
  return true;
}

bool ModelRepository::IsEvicted(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto it = entries_.find(name);
  return it != entries_.end() && it->second.evicted;
}

void ModelRepository::Wake(const std::string& name, Done done) {
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[name];
    entry.waking.push_back(std::move(done));
    if (entry.waking.size() > 1) return;
  }
  Reload(name, [this, name](const absl::Status& loaded) {
    std::vector<Done> waking;
    {
      const MutexLock lock(mutex_);
      waking.swap(entries_[name].waking);
    }
    for (const Done& each : waking) each(loaded);
  });
}

}  // namespace telegrad
