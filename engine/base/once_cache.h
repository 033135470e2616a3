// A cache of values that are made once: whoever asks first makes the value, others who ask
// meanwhile wait for it, each for as long as its own budget allows. What is kept is counted in
// entries and bytes, charged to an account where there is one, and evicted least recently used.
//
// A cache that several tenants share is fair: each value is held by one tenant, at first the one
// for which it was made. To make room, the least recently used value of the tenant that holds the
// most for its weight is evicted, so a tenant within its fair share loses nothing to others. If
// another tenant has used that value since and holds less, the value moves to that tenant instead.
//
// A failure is not kept. Those who waited for it get the same error, unless it is of the maker's
// own budget (its deadline, its cancellation, its limits) or of the moment (UNAVAILABLE, ABORTED):
// then one of them makes the value anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "engine/base/budget.h"
#include "engine/base/mutex.h"
#include "engine/base/share.h"

namespace telegrad {

struct OnceCacheOptions {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  int64_t max_entries = kUnlimited;
  int64_t max_bytes = kUnlimited;  // a value of more is made, and not kept
  bool fair = false;               // between the shares of the budgets; else all is held by none
  std::shared_ptr<Account> account = nullptr;  // charged with the bytes kept; null: none
  // Orders the uses of several caches; null: a clock of its own.
  std::shared_ptr<std::atomic<uint64_t>> clock = nullptr;
};

struct OnceCacheCounts {
  uint64_t hits = 0;    // a value that was there, or that another call made meanwhile
  uint64_t misses = 0;  // a value that was made, or could not be
  uint64_t waits = 0;   // calls that found it being made
  uint64_t evictions = 0;
  int64_t entries = 0;
  int64_t bytes = 0;
};

// What OnceCache does whatever the values are. Thread-safe.
class OnceCacheCore {
 public:
  struct Value {
    std::shared_ptr<const void> value;
    int64_t bytes = 0;
  };
  struct Got {
    std::shared_ptr<const void> value;
    bool made = false;
  };
  using Make = absl::FunctionRef<absl::StatusOr<Value>()>;

  explicit OnceCacheCore(OnceCacheOptions options);
  ~OnceCacheCore();
  OnceCacheCore(const OnceCacheCore&) = delete;
  OnceCacheCore& operator=(const OnceCacheCore&) = delete;

  absl::StatusOr<Got> Get(std::string_view key, Budget* budget, Make make);
  std::shared_ptr<const void> Find(std::string_view key);
  bool Contains(std::string_view key) const;
  std::optional<uint64_t> LastUse(std::string_view key) const;
  void Erase(std::string_view key);
  std::vector<std::shared_ptr<const void>> All() const;
  std::optional<uint64_t> OldestUse() const;
  void DropOldest();
  OnceCacheCounts counts() const;

 private:
  // A value that is being made, and those who wait for it.
  class Making;
  using SharePtr = std::shared_ptr<const Share>;
  // Values that leave the cache: destroyed by the caller, without the lock.
  using Dropped = std::vector<std::shared_ptr<const void>>;
  struct Entry {
    std::string key;
    Value value;
    uint64_t used;             // when it was last
    const Share* holder;       // null: none in particular
    SharePtr other = nullptr;  // the tenant that used it last, other than its holder
  };
  using Entries = std::list<Entry>;  // least recently used first
  struct Holder {
    SharePtr share;
    Entries entries;
    int64_t bytes = 0;
  };

  void Keep(std::string_view key, Value value, const SharePtr& share, Dropped* dropped)
      TG_REQUIRES(mutex_);
  void Touch(Entries::iterator entry) TG_REQUIRES(mutex_);
  void Use(Entries::iterator entry, const SharePtr& share) TG_REQUIRES(mutex_);
  Holder& HolderOf(const SharePtr& share) TG_REQUIRES(mutex_);
  // The part of the cache that the holder has, with so much more, for each unit of its weight.
  double LoadOf(const Holder& holder, int64_t entries, int64_t bytes) const;
  void MakeRoom(Dropped* dropped) TG_REQUIRES(mutex_);
  void MoveTo(const SharePtr& share, Entries::iterator entry) TG_REQUIRES(mutex_);
  void Drop(Entries::iterator entry, Dropped* dropped) TG_REQUIRES(mutex_);
  void ForgetIfEmpty(const Share* holder) TG_REQUIRES(mutex_);
  const Holder* WithOldest() const TG_REQUIRES(mutex_);

  const OnceCacheOptions options_;
  mutable Mutex mutex_;
  // The keys are those of the entries.
  absl::flat_hash_map<std::string_view, Entries::iterator> by_key_ TG_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<Making>> making_ TG_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Share*, Holder> holders_ TG_GUARDED_BY(mutex_);  // of an entry or more
  OnceCacheCounts counts_ TG_GUARDED_BY(mutex_);
};

// Thread-safe.
template <typename T>
class OnceCache {
 public:
  using Ptr = std::shared_ptr<const T>;
  struct Got {
    Ptr value;
    bool made = false;  // by this call
  };

  // `bytes_of` is asked once for each value.
  OnceCache(OnceCacheOptions options, int64_t (*bytes_of)(const T&))
      : core_(std::move(options)), bytes_of_(bytes_of) {}

  // The value under the key, made by `make` if need be, on this thread and without a lock. `make`
  // may ask for other keys, never for this one. While another call makes it: the error of `budget`
  // as soon as its time is over or it is cancelled.
  absl::StatusOr<Got> Get(std::string_view key, Budget* budget,
                          absl::FunctionRef<absl::StatusOr<Ptr>()> make) {
    auto got = core_.Get(key, budget, [&]() -> absl::StatusOr<OnceCacheCore::Value> {
      auto made = make();
      if (!made.ok()) return made.status();
      const int64_t bytes = bytes_of_(**made);
      return OnceCacheCore::Value{*std::move(made), bytes};
    });
    if (!got.ok()) return got.status();
    return Got{Typed(std::move(got->value)), got->made};
  }
  // The value if it is there, without waiting; else null.
  Ptr Find(std::string_view key) { return Typed(core_.Find(key)); }
  // Whether it is there or being made; not a use.
  bool Contains(std::string_view key) const { return core_.Contains(key); }
  // When it was last used, by the clock; nullopt where it is not there.
  std::optional<uint64_t> LastUse(std::string_view key) const { return core_.LastUse(key); }
  // Those who have the value keep it.
  void Erase(std::string_view key) { core_.Erase(key); }
  std::vector<Ptr> All() const {
    std::vector<Ptr> all;
    for (auto& value : core_.All()) all.push_back(Typed(std::move(value)));
    return all;
  }

  // The time at which the least recently used value was used, by the clock; nullopt: there is none.
  std::optional<uint64_t> OldestUse() const { return core_.OldestUse(); }
  // Evicts that value.
  void DropOldest() { core_.DropOldest(); }

  OnceCacheCounts counts() const { return core_.counts(); }

 private:
  static Ptr Typed(std::shared_ptr<const void> value) {
    return std::static_pointer_cast<const T>(std::move(value));
  }

  OnceCacheCore core_;
  int64_t (*const bytes_of_)(const T&);
};

}  // namespace telegrad
