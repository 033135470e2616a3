// A GPU's memory. It comes from a VirtualArena where the driver has virtual memory management.
// Where not, or where it refuses that, each allocation is one of the library's; what is freed of
// these is kept for the next allocation of about its size, because the library's own free may wait
// for everything that runs. Where memory has to go back to the library after all, no mutex is held
// meanwhile, so that allocations and frees of other threads go on. New memory is zeroed by the GPU
// on a stream of its own; the first use on another stream waits for that. Exported memory is a
// block that is used for nothing else before or after. Memory of another process is opened and
// closed, and neither zeroed nor counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/api/idle_at_once.h"
#include "devices/stream/context.h"
#include "devices/stream/virtual_arena.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

class Memories;

class StreamMemory final : public Memory {
 public:
  // `zeroing`: which of its owner's it is; 0 for none.
  StreamMemory(MemoryKind kind, std::shared_ptr<Memories> owner, Address address, int64_t block,
               int64_t size, uint64_t zeroing)
      : Memory(nullptr, size, /*writable=*/true, kind),
        owner_(std::move(owner)),
        address_(address),
        block_(block),
        zeroing_(zeroing) {}
  ~StreamMemory() override;
  absl::Status Health() const override;

  Memories& owner() const { return *owner_; }
  Address address() const { return address_; }
  // Which of its owner's zeroings it is.
  uint64_t zeroing() const { return zeroing_; }

 private:
  const std::shared_ptr<Memories> owner_;
  const Address address_;
  const int64_t block_;  // bytes that it takes; 0 of another process's
  const uint64_t zeroing_;
};

// Memory of the host that the driver has locked, so that the GPU copies from and to it. It is the
// process's and stays as it is when the context goes.
class PinnedMemory final : public Memory {
 public:
  // Of whole pages, zeroed or with whatever contents. An error where the driver locks none.
  static absl::StatusOr<std::shared_ptr<Memory>> Lock(const std::shared_ptr<Context>& context,
                                                      int64_t size, bool zeroed);
  // Whole pages where they are.
  static absl::StatusOr<std::shared_ptr<Memory>> LockAt(const std::shared_ptr<Context>& context,
                                                        std::shared_ptr<void> pages, int64_t size);
  PinnedMemory(std::shared_ptr<Context> context, std::shared_ptr<void> pages, int64_t size)
      : Memory(pages.get(), size, /*writable=*/true, MemoryKind::kPinnedHost),
        context_(std::move(context)),
        pages_(std::move(pages)) {}
  ~PinnedMemory() override;
  const Context& context() const { return *context_; }

 private:
  const std::shared_ptr<Context> context_;
  std::shared_ptr<void> pages_;
};

// Thread-safe.
class Memories final : public IdleMemoryAtOnce, public std::enable_shared_from_this<Memories> {
 public:
  // `limit` bytes can be in use at once. `is_virtual`: the GPU has virtual memory management.
  static absl::StatusOr<std::shared_ptr<Memories>> Create(std::shared_ptr<Context> context,
                                                          int64_t limit, bool is_virtual);
  ~Memories() override;

  // Of the GPU, of kind kDevice or kExported.
  absl::StatusOr<std::shared_ptr<Memory>> Alloc(MemoryKind kind, int64_t size);
  absl::StatusOr<std::shared_ptr<Memory>> AllocPinned(int64_t size);
  bool Makes(MemoryKind kind) const;
  // As Device::ExportHandle and ImportHandle.
  absl::StatusOr<std::string> Export(const Memory& memory);
  absl::StatusOr<std::shared_ptr<Memory>> Import(std::string_view handle, int64_t size);
  // Counts what the driver takes for the stacks of so many threads, once for all programs: it keeps
  // the most that one needs. RESOURCE_EXHAUSTED if that is not left.
  absl::Status HoldStacks(int64_t bytes, int64_t threads);
  // Counts the code of a module for as long as what is returned is kept; it does not keep the
  // memories. RESOURCE_EXHAUSTED if that is not left.
  absl::StatusOr<std::shared_ptr<const void>> HoldCode(int64_t bytes);
  // Gives all that is kept back to the driver, for what that needs itself, in the current context.
  absl::Status GiveBackKept();
  // RESOURCE_EXHAUSTED: the driver's message, and that it has no `bytes`, which are counted, though
  // they are within the limit.
  absl::Status OthersTookIt(const absl::Status& status, int64_t bytes) const;
  // Makes a stream of `waiter`, which becomes the current context, wait for all zeroings there have
  // been. The number of the last.
  absl::StatusOr<uint64_t> AwaitZeroed(Context& waiter, StreamHandle stream);

  Context& context() const { return *context_; }
  int64_t limit() const { return limit_; }
  int64_t used() const;
  int64_t footprint() const;  // with what is kept
  bool has_arena() const { return arena_ != nullptr; }
  // Of the arena.
  absl::StatusOr<int64_t> GiveBack() override;
  absl::StatusOr<int64_t> GiveBackAll() override;

 private:
  friend class StreamMemory;
  struct Block {
    Address address = 0;
    int64_t bytes = 0;
  };

  Memories(std::shared_ptr<Context> context, int64_t limit, std::unique_ptr<Stream> zeroing)
      : context_(std::move(context)), limit_(limit), zeroing_(std::move(zeroing)) {}

  void DropCode(int64_t bytes);
  absl::Status NoRoomLocked(int64_t size) const TG_REQUIRES(mutex_);
  absl::StatusOr<Block> Take(int64_t size);
  absl::StatusOr<Block> TakeFromArena(int64_t bytes);
  absl::StatusOr<Block> Grow(int64_t bytes);
  absl::StatusOr<Address> AllocateFromLibrary(int64_t bytes);
  // Gives what is kept back to the library until at most `left` bytes are ours.
  absl::Status Shrink(int64_t left);
  // Waits for what other threads are giving back.
  void AwaitFrees();
  absl::StatusOr<uint64_t> Zero(const Block& block, int64_t bytes);
  absl::StatusOr<Block> TakeNew(MemoryKind kind, int64_t size);
  void Return(const Block& block, MemoryKind kind);
  void Close(Address address) const;
  // Of the footprint.
  int64_t BytesBesideArena() const;
  int64_t ArenaBytes() const { return arena_ == nullptr ? 0 : arena_->footprint(); }

  const std::shared_ptr<Context> context_;
  const int64_t limit_;
  std::unique_ptr<Stream> zeroing_;      // null once no more is zeroed
  std::shared_ptr<VirtualArena> arena_;  // may be null

  mutable Mutex mutex_;  // never held during a call of the library
  std::multimap<int64_t, Address> kept_ TG_GUARDED_BY(mutex_);  // by size
  std::vector<Block> retired_ TG_GUARDED_BY(mutex_);  // was exported; goes with the next Shrink
  int64_t used_ TG_GUARDED_BY(mutex_) = 0;
  int64_t stacks_ TG_GUARDED_BY(mutex_) = 0;  // of that, and of the footprint
  // Beside the arena's. Also what is about to be allocated, no longer what is being given back.
  int64_t footprint_ TG_GUARDED_BY(mutex_) = 0;
  int frees_ TG_GUARDED_BY(mutex_) = 0;  // threads that are giving blocks back
  ConditionVariable freed_;

  Mutex zeroing_mutex_;
  EventHandle zeroed_ TG_GUARDED_BY(zeroing_mutex_) = nullptr;
  uint64_t zeroings_ TG_GUARDED_BY(zeroing_mutex_) = 0;
};

}  // namespace telegrad::stream
