// Of the repository, what makes room: models that nobody has asked for the longest time go, and
// come back with the next request.
#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/base/status.h"
#include "server/admin/log.h"
#include "server/serving/repository.h"

namespace telegrad {
namespace {

// How long whoever needs room waits for answers that are being sent and hold the weights meanwhile.
// A client that does not take its answer holds them longer; then the next model goes, too.
constexpr int64_t kLongestWaitNs = 1'000'000'000;

// Ends with the last of these, or at that time.
std::shared_ptr<Ending> EndOfAll(const std::vector<std::shared_ptr<Ending>>& all, Alarm* alarm,
                                 int64_t at_ns) {
  const auto end = std::make_shared<Ending>();
  const auto left = std::make_shared<std::atomic<size_t>>(all.size());
  for (const auto& each : all) {
    each->Then([end, left] {
      if (left->fetch_sub(1) == 1) end->End();
    });
  }
  if (!end->ended()) alarm->At(at_ns, [end] { end->End(); });
  return end;
}

}  // namespace

std::shared_ptr<Ending> ModelRepository::EvictOne(const std::string& for_name) {
  std::map<int64_t, std::shared_ptr<ServedModel>> dropped;  // without the lock
  std::vector<std::shared_ptr<Ending>> gone;
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
    if (oldest == nullptr) return nullptr;
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
  Log(LogLevel::kInfo, "model_evicted", {{"name", name}, {"for", for_name}});
  // A request that was answered a moment ago may not have given back what it used.
  return EndOfAll(gone, &alarm_, maker_.env->clock->Ns() + kLongestWaitNs);
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
