#include "engine/base/once_cache.h"

#include <algorithm>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Whether an error says nothing about the value to someone else who asks for it.
bool IsOfTheCall(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsUnavailable(status) ||
         absl::IsAborted(status);
}

}  // namespace

class OnceCacheCore::Making {
 public:
  void Finish(const absl::StatusOr<Value>& result) {
    const MutexLock lock(mutex_);
    result_ = result;
    finished_.notify_all();
  }
  // The result, or the error of the budget as `given_up`.
  absl::StatusOr<Value> Wait(Budget* budget, absl::Status* given_up) {
    const Budget::Doing doing(budget, "waiting for another job that makes the same");
    ReleasableLock lock(mutex_);
    while (!result_) {
      *given_up = budget->CheckTime();
      if (!given_up->ok()) return *given_up;
      finished_.wait_for(lock, Budget::kTick);
    }
    return *result_;
  }

 private:
  Mutex mutex_;
  ConditionVariable finished_;
  std::optional<absl::StatusOr<Value>> result_ TG_GUARDED_BY(mutex_);
};

OnceCacheCore::OnceCacheCore(OnceCacheOptions options)
    : options_([&] {
        if (options.clock == nullptr) options.clock = std::make_shared<std::atomic<uint64_t>>(0);
        return std::move(options);
      }()) {}

OnceCacheCore::~OnceCacheCore() {
  if (options_.account != nullptr) options_.account->Release(counts_.bytes);
}

absl::StatusOr<OnceCacheCore::Got> OnceCacheCore::Get(std::string_view key, Budget* budget,
                                                      Make make) {
  const SharePtr share = options_.fair ? budget->share() : nullptr;
  while (true) {
    std::shared_ptr<Making> making;
    bool mine = false;
    {
      const MutexLock lock(mutex_);
      if (const auto it = by_key_.find(key); it != by_key_.end()) {
        ++counts_.hits;
        Use(it->second, share);
        return Got{it->second->value.value, false};
      }
      std::shared_ptr<Making>& known = making_[std::string(key)];
      mine = known == nullptr;
      if (mine) {
        known = std::make_shared<Making>();
        ++counts_.misses;
      }
      counts_.waits += !mine;
      making = known;
    }
    if (!mine) {
      absl::Status given_up;
      const absl::StatusOr<Value> made = making->Wait(budget, &given_up);
      if (!given_up.ok()) return given_up;
      if (!made.ok()) {
        if (IsOfTheCall(made.status())) continue;
        return made.status();
      }
      const MutexLock lock(mutex_);
      ++counts_.hits;
      if (const auto it = by_key_.find(key); it != by_key_.end()) Use(it->second, share);
      return Got{made->value, false};
    }
    const absl::StatusOr<Value> made = make();
    Dropped dropped;
    {
      const MutexLock lock(mutex_);
      making_.erase(std::string(key));
      if (made.ok()) Keep(key, *made, share, &dropped);
    }
    making->Finish(made);
    if (!made.ok()) return made.status();
    return Got{made->value, true};
  }
}

std::shared_ptr<const void> OnceCacheCore::Find(std::string_view key) {
  const MutexLock lock(mutex_);
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  ++counts_.hits;
  Touch(it->second);
  return it->second->value.value;
}

bool OnceCacheCore::Contains(std::string_view key) const {
  const MutexLock lock(mutex_);
  return by_key_.contains(key) || making_.contains(std::string(key));
}

std::optional<uint64_t> OnceCacheCore::LastUse(std::string_view key) const {
  const MutexLock lock(mutex_);
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return std::nullopt;
  return it->second->used;
}

void OnceCacheCore::Erase(std::string_view key) {
  Dropped dropped;
  const MutexLock lock(mutex_);
  if (const auto it = by_key_.find(key); it != by_key_.end()) Drop(it->second, &dropped);
}

std::vector<std::shared_ptr<const void>> OnceCacheCore::All() const {
  std::vector<std::shared_ptr<const void>> all;
  const MutexLock lock(mutex_);
  for (const auto& [key, entry] : by_key_) all.push_back(entry->value.value);
  return all;
}

std::optional<uint64_t> OnceCacheCore::OldestUse() const {
  const MutexLock lock(mutex_);
  const Holder* const holder = WithOldest();
  if (holder == nullptr) return std::nullopt;
  return holder->entries.front().used;
}

void OnceCacheCore::DropOldest() {
  Dropped dropped;
  const MutexLock lock(mutex_);
  const Holder* const holder = WithOldest();
  if (holder == nullptr) return;
  Drop(by_key_.at(holder->entries.front().key), &dropped);
  ++counts_.evictions;
}

OnceCacheCounts OnceCacheCore::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

void OnceCacheCore::Keep(std::string_view key, Value value, const SharePtr& share,
                         Dropped* dropped) {
  if (value.bytes > options_.max_bytes) return;
  Holder& holder = HolderOf(share);
  const int64_t bytes = value.bytes;
  const uint64_t now = options_.clock->fetch_add(1, std::memory_order_relaxed);
  holder.entries.push_back({std::string(key), std::move(value), now, share.get()});
  holder.bytes += bytes;
  by_key_.emplace(holder.entries.back().key, std::prev(holder.entries.end()));
  ++counts_.entries;
  counts_.bytes += bytes;
  if (options_.account != nullptr) options_.account->Charge(bytes);
  MakeRoom(dropped);
}

void OnceCacheCore::Touch(Entries::iterator entry) {
  entry->used = options_.clock->fetch_add(1, std::memory_order_relaxed);
  Entries& entries = holders_.at(entry->holder).entries;
  entries.splice(entries.end(), entries, entry);
}

void OnceCacheCore::Use(Entries::iterator entry, const SharePtr& share) {
  Touch(entry);
  if (share.get() != entry->holder) entry->other = share;
}

OnceCacheCore::Holder& OnceCacheCore::HolderOf(const SharePtr& share) {
  Holder& holder = holders_[share.get()];
  holder.share = share;
  return holder;
}

double OnceCacheCore::LoadOf(const Holder& holder, int64_t entries, int64_t bytes) const {
  const auto part = [](int64_t of, int64_t limit) {
    return static_cast<double>(of) / static_cast<double>(std::max<int64_t>(limit, 1));
  };
  const int64_t weight = holder.share == nullptr ? 1 : holder.share->weight();
  return std::max(part(static_cast<int64_t>(holder.entries.size()) + entries, options_.max_entries),
                  part(holder.bytes + bytes, options_.max_bytes)) /
         static_cast<double>(weight);
}

void OnceCacheCore::MakeRoom(Dropped* dropped) {
  while (counts_.entries > options_.max_entries || counts_.bytes > options_.max_bytes) {
    const Holder* most = nullptr;
    double load = 0;
    for (const auto& [share, holder] : holders_) {
      const double of_holder = LoadOf(holder, 0, 0);
      const bool older =
          most != nullptr && holder.entries.front().used < most->entries.front().used;
      if (most == nullptr || of_holder > load || (of_holder == load && older)) {
        most = &holder;
        load = of_holder;
      }
    }
    const auto entry = by_key_.at(most->entries.front().key);
    const SharePtr other = std::exchange(entry->other, nullptr);
    if (other != nullptr && LoadOf(HolderOf(other), 1, entry->value.bytes) < load) {
      MoveTo(other, entry);
    } else {
      if (other != nullptr) ForgetIfEmpty(other.get());
      Drop(entry, dropped);
      ++counts_.evictions;
    }
  }
}

void OnceCacheCore::MoveTo(const SharePtr& share, Entries::iterator entry) {
  const Share* const from = entry->holder;
  Holder& to = HolderOf(share);
  Holder& old = holders_.at(from);
  // In the order of use.
  const auto at = std::ranges::find_if(
      to.entries, [&](const Entry& other) { return other.used > entry->used; });
  to.entries.splice(at, old.entries, entry);
  old.bytes -= entry->value.bytes;
  to.bytes += entry->value.bytes;
  entry->holder = share.get();
  ForgetIfEmpty(from);
}

void OnceCacheCore::Drop(Entries::iterator entry, Dropped* dropped) {
  const Share* const share = entry->holder;
  Holder& holder = holders_.at(share);
  const int64_t bytes = entry->value.bytes;
  holder.bytes -= bytes;
  --counts_.entries;
  counts_.bytes -= bytes;
  if (options_.account != nullptr) options_.account->Release(bytes);
  dropped->push_back(std::move(entry->value.value));
  by_key_.erase(entry->key);
  holder.entries.erase(entry);
  ForgetIfEmpty(share);
}

void OnceCacheCore::ForgetIfEmpty(const Share* holder) {
  const auto it = holders_.find(holder);
  if (it != holders_.end() && it->second.entries.empty()) holders_.erase(it);
}

// The least recently used entry is the first of one of them.
const OnceCacheCore::Holder* OnceCacheCore::WithOldest() const {
  const Holder* oldest = nullptr;
  for (const auto& [share, holder] : holders_) {
    if (oldest == nullptr || holder.entries.front().used < oldest->entries.front().used) {
      oldest = &holder;
    }
  }
  return oldest;
}

}  // namespace telegrad
