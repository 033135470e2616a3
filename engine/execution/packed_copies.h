// Copies of weights in the order in which kernels read them (Program::Packing), kept between the
// runs of one tenant on a device and found by the contents that they were made of. A weight is
// worth a copy when a run binds the same contents a second time: until then, and where there is no
// memory, a run packs for itself, into its temporaries. Copies are charged to the tenant's memory,
// and go when that or the device's runs out, or when the weight is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"

namespace telegrad {

struct PackedCopy {
  BufferView memory;
  TimelinePoint made;  // who reads it waits for this
};

// Thread-safe.
class PackedCopies {
 public:
  struct Wanted {
    BufferView weight;
    std::string kernel;  // that packs it: its name, which is that of its content
    int64_t bytes = 0;   // of the copy
  };
  // Submits the kernel that fills the memory with the copy number `i` of those wanted.
  using Make = std::function<absl::StatusOr<TimelinePoint>(size_t i, const BufferView& memory)>;

  PackedCopies(Device* device, std::shared_ptr<Account> account)
      : device_(*device), account_(std::move(account)) {}

  // A copy for each, made where it was not there. nullopt where the contents are unknown or wanted
  // for the first time, or where there is no memory.
  std::vector<std::optional<PackedCopy>> Get(std::span<const Wanted> wanted, const Make& make);

  // Drops all copies; a run in flight keeps those that it reads.
  void Release();

  int64_t bytes() const;  // of all copies

 private:
  struct Key {
    uint64_t content = 0;
    int64_t offset = 0;
    std::string kernel;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.content, key.offset, key.kernel);
    }
  };
  struct Entry {
    Key key;
    std::weak_ptr<Memory> weight;
    std::optional<PackedCopy> copy;  // none: the contents were wanted once
    bool making = false;             // a thread makes one
  };
  using Entries = std::list<Entry>;
  using Dropped = std::vector<std::optional<PackedCopy>>;  // go without the lock

  static Key KeyOf(const Wanted& wanted) {
    return {wanted.weight.content, wanted.weight.offset, wanted.kernel};
  }
  // Finds the copy; true if the caller is to make one.
  bool Begin(const Wanted& wanted, std::optional<PackedCopy>* copy);
  void End(const Wanted& wanted, const std::optional<PackedCopy>& made);
  Entries::iterator Find(const Wanted& wanted, Dropped* dropped) TG_REQUIRES(mutex_);
  void Erase(Entries::iterator entry, Dropped* dropped) TG_REQUIRES(mutex_);
  std::optional<PackedCopy> MakeCopy(
      int64_t bytes,
      const std::function<absl::StatusOr<TimelinePoint>(const BufferView& memory)>& make);
  void Add(const Wanted& wanted, Dropped* dropped) TG_REQUIRES(mutex_);

  Device& device_;
  const std::shared_ptr<Account> account_;
  mutable Mutex mutex_;
  Entries entries_ TG_GUARDED_BY(mutex_);  // least recently used first
  absl::flat_hash_map<Key, Entries::iterator> by_key_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
