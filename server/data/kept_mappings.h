// Mappings of shared memory, kept for a moment after a transfer. Building and removing the
// entries of page tables costs more than copying the content of the pages (7 GB/s against 14
// where both were measured), and programs that share memory use the same part again and again.
//
// A mapping belongs to one transfer at a time: a page that the system cannot provide is then an
// error of that transfer alone.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"
#include "server/admin/ticker.h"

namespace telegrad {

// A mapped part of a file, which it keeps alive.
class Mapping {
 public:
  // Part [offset, offset + bytes), which has bytes. DATA_LOSS where the system refuses.
  static absl::StatusOr<std::unique_ptr<Mapping>> Of(int fd, uint64_t offset, size_t bytes,
                                                     bool writable);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  // Enters all pages of [at, at + bytes) into the page tables, which is faster than one by one when
  // they are accessed. Advice: what does not succeed happens at the access.
  void Populate(size_t at, size_t bytes) const;
  // Takes the pages out of the page tables again; the file keeps them.
  void Forget(size_t at, size_t bytes) const;

 private:
  Mapping(void* whole, size_t whole_bytes, std::span<std::byte> bytes)
      : whole_(whole), whole_bytes_(whole_bytes), bytes_(bytes) {}
  void Advise(size_t at, size_t bytes, int advice) const;

  void* const whole_;  // from the beginning of a page on
  const size_t whole_bytes_;
  const std::span<std::byte> bytes_;
};

// Thread-safe.
class KeptMappings {
 public:
  // Of a mapping: what it maps, and whose it is. As long as it is kept, no other file has its
  // numbers.
  struct Key {
    const Account* owner = nullptr;
    uint64_t device = 0, file = 0, offset = 0, bytes = 0;
    bool writable = false;
    friend bool operator==(const Key&, const Key&) = default;
  };
  static constexpr size_t kMost = 8;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of all that are kept

  // Those that were not used for `time` at most are removed.
  explicit KeptMappings(std::chrono::milliseconds time = std::chrono::seconds(2));

  // Null if there is none.
  std::unique_ptr<Mapping> Take(const Key& key);
  // Removes the oldest ones for it where there is no room. `paid` goes with it.
  void Put(const Key& key, std::unique_ptr<Mapping> mapping, Reservation paid);
  // One transfer of the account. Where it has no room, what is kept for it is removed.
  absl::StatusOr<Reservation> Pay(const std::shared_ptr<Account>& owner);
  // Removes those that were there at the last call, too; called every `time` / 2.
  void Sweep();
  size_t size() const;

 private:
  void Drop(const Account* owner);

  struct Kept {
    Key key;
    std::unique_ptr<Mapping> mapping;
    Reservation paid;
    int looks = 0;  // of Sweep
  };

  mutable Mutex mutex_;
  std::deque<Kept> kept_ TG_GUARDED_BY(mutex_);  // the oldest first
  uint64_t bytes_ TG_GUARDED_BY(mutex_) = 0;
  Ticker ticker_;  // last: it uses the rest
};

}  // namespace telegrad
