// A device's memory: buffers of the driver, counted against a limit and zeroed when they are made;
// and memory of the host that the driver allocates, from and to which it copies by itself.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/opencl/context.h"
#include "engine/base/mutex.h"

namespace telegrad::opencl {

class Memories;

class OpenClMemory final : public Memory {
 public:
  OpenClMemory(std::shared_ptr<Memories> owner, cl_mem handle, int64_t size)
      : Memory(nullptr, size), owner_(std::move(owner)), handle_(handle) {}
  ~OpenClMemory() override;

  const Context& context() const;
  cl_mem handle() const { return handle_; }
  absl::Status Health() const override;

 private:
  const std::shared_ptr<Memories> owner_;
  const cl_mem handle_;
};

// A buffer of the driver in memory of the host, where it stays mapped for as long as it lives.
class PinnedMemory final : public Memory {
 public:
  PinnedMemory(std::shared_ptr<Memories> owner, cl_mem handle, void* at, int64_t size)
      : Memory(at, size, /*writable=*/true, MemoryKind::kPinnedHost),
        owner_(std::move(owner)),
        handle_(handle) {}
  ~PinnedMemory() override;

 private:
  const std::shared_ptr<Memories> owner_;
  const cl_mem handle_;
};

// Lets one thread at a time in, in the order in which they come: one that comes again and again
// keeps no other one waiting for longer than it takes once.
class Turns {
 public:
  void Begin() {
    ReleasableLock lock(mutex_);
    const uint64_t mine = next_++;
    while (turn_ != mine) ended_.wait(lock);
  }
  void End() {
    const MutexLock lock(mutex_);
    ++turn_;
    ended_.notify_all();
  }

 private:
  Mutex mutex_;
  ConditionVariable ended_;
  uint64_t next_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t turn_ TG_GUARDED_BY(mutex_) = 0;
};

// Thread-safe.
class Memories : public std::enable_shared_from_this<Memories> {
 public:
  // `limit` bytes can be in use at once, `largest` in one allocation.
  static absl::StatusOr<std::shared_ptr<Memories>> Create(std::shared_ptr<Context> context,
                                                          int64_t limit, int64_t largest);

  // Returns when the memory is zero. Calls that come meanwhile do not wait for the end of this one.
  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size);

  // Of the host, zeroed. It is not counted, and has its contents also of a context that is
  // discarded.
  absl::StatusOr<std::shared_ptr<Memory>> AllocPinned(int64_t size);

  // Gives all of it but what is pinned back to the driver, of a context that is discarded.
  void Discard();

  Context& context() const { return *context_; }
  int64_t limit() const { return limit_; }
  int64_t used() const;

 private:
  friend class OpenClMemory;
  friend class PinnedMemory;

  Memories(std::shared_ptr<Context> context, int64_t limit, int64_t largest,
           std::unique_ptr<CommandQueue> zeroing)
      : context_(std::move(context)),
        limit_(limit),
        largest_(largest),
        zeroing_(std::move(zeroing)) {}

  absl::Status Zero(cl_mem memory, int64_t bytes);
  void Return(cl_mem memory, int64_t bytes);
  absl::Status CheckSize(int64_t size) const;
  absl::StatusOr<cl_mem> Create(cl_bitfield flags, int64_t size);
  absl::StatusOr<void*> Map(cl_mem memory, int64_t size);
  void ReturnPinned(cl_mem memory, void* at);

  const std::shared_ptr<Context> context_;
  const int64_t limit_, largest_;

  mutable Mutex mutex_;
  int64_t used_ TG_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_set<cl_mem> live_ TG_GUARDED_BY(mutex_);  // that the driver has

  Turns turns_;
  const std::unique_ptr<CommandQueue> zeroing_;  // it maps, too; used in a turn
};

}  // namespace telegrad::opencl
