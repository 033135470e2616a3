// The device's memory: one reserved range of addresses, backed by huge pages, that is never
// given back to the system. A page that was used before is mapped already; a new one costs a
// page fault and takes twenty times as long.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/suballocator.h"
#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

// Thread-safe. Alignment is 64 bytes up to 1 MiB and 2 MiB above.
class Arena {
 public:
  // `limit` bytes can be in use at once. RESOURCE_EXHAUSTED if the system has not as many
  // addresses.
  static absl::StatusOr<std::shared_ptr<Arena>> Create(int64_t limit);
  // The same, in `file`, of CapacityFor(limit) bytes, which others may map.
  static absl::StatusOr<std::shared_ptr<Arena>> CreateIn(UniqueFd file, int64_t limit);
  // What an arena takes of addresses, and of its file; -1 where `limit` is none.
  static int64_t CapacityFor(int64_t limit);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `size` >= 0 zeroed bytes. RESOURCE_EXHAUSTED over the limit, or when no stretch is long enough.
  absl::StatusOr<void*> Alloc(int64_t size);
  // What Alloc returned, with the same size.
  void Free(void* at, int64_t size);

  // Counts bytes that are elsewhere as the arena's, and no more.
  // RESOURCE_EXHAUSTED over the limit.
  absl::Status Count(int64_t size);
  void Uncount(int64_t size);

  // Gives the pages of a file's free blocks back to the system.
  void GiveBack();

  int64_t limit() const { return limit_; }
  int descriptor() const { return file_.get(); }  // of its file
  char* base() const { return base_; }
  int64_t capacity() const { return capacity_; }
  int64_t used() const;  // in steps of 64 bytes an allocation
  // What the system holds for this arena: the most bytes that were ever touched, less what was
  // given back behind them.
  int64_t footprint() const;

 private:
  Arena(char* mapping, int64_t mapped, char* base, int64_t capacity, int64_t limit, UniqueFd file);

  absl::Status CheckRoom(int64_t size) const TG_REQUIRES(mutex_);

  char* const mapping_;
  const int64_t mapped_;
  char* const base_;
  const int64_t capacity_;
  const int64_t limit_;
  const UniqueFd file_;

  mutable Mutex mutex_;
  int64_t used_ TG_GUARDED_BY(mutex_) = 0;
  Suballocator offsets_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
