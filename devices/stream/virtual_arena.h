// A GPU's memory by virtual memory management: one reserved range of addresses, divided by a
// Suballocator, where chunks of memory are mapped as allocations need them. A chunk in which
// nothing is allocated any more stays mapped, so that allocating and freeing usually calls nothing
// of the driver. Where memory is short, such chunks are mapped to other addresses, or go back to
// the driver, by the thread that needs them; no mutex is held meanwhile. Those that nobody has used
// for some time go back by whoever asks for that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/suballocator.h"
#include "devices/stream/context.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

// Thread-safe. All but Create, Has, footprint and Return work in the current context.
class VirtualArena {
 public:
  static constexpr int64_t kAlignment = 256;  // of an allocation

  // Of about `limit` bytes. `zeroing`: the stream on which memory is zeroed, which lives as long as
  // memory is taken. An error where the driver refuses the addresses.
  static absl::StatusOr<std::shared_ptr<VirtualArena>> Create(std::shared_ptr<Context> context,
                                                              int64_t limit, StreamHandle zeroing);
  VirtualArena(const VirtualArena&) = delete;
  VirtualArena& operator=(const VirtualArena&) = delete;

  // `size` > 0 bytes at a multiple of kAlignment, with whatever contents. Only what cannot be had
  // of empty chunks makes the arena hold more than `most` bytes. RESOURCE_EXHAUSTED where neither
  // has room: the driver, and the empty chunks.
  absl::StatusOr<Address> Take(int64_t size, int64_t most);
  // What Take returned, with the same size. No work uses it any more, but for its zeroing.
  void Return(Address address, int64_t size);
  bool Has(Address address) const {
    return address >= base_ && address - base_ < static_cast<Address>(capacity_);
  }
  // Gives empty chunks back to the driver until the arena holds at most `most` bytes.
  absl::Status Shrink(int64_t most);
  // Gives the chunks back to the driver in which nothing has been allocated or freed since the call
  // before, as long as the GPU is idle: nothing is waited for. How many bytes it was.
  // FAILED_PRECONDITION where the GPU is not idle.
  absl::StatusOr<int64_t> GiveBackIdle();
  // Gives all back to the driver, also what is in use, and the addresses. The last call but Return.
  void Drop();

  int64_t footprint() const;

 private:
  enum class ChunkState : uint8_t {
    kAbsent,
    kChanging,  // a thread is mapping or unmapping it
    kMapped,
  };
  struct Chunk {
    ChunkState state = ChunkState::kAbsent;
    PhysicalHandle memory = 0;  // of one that is mapped
    uint64_t used = 0;          // at which look for idle ones it was allocated in or freed
  };
  // What a thread has to map, in ascending order, and for how many there should be empty ones.
  struct Missing {
    std::vector<size_t> chunks;
    size_t from_empty = 0;
  };

  VirtualArena(std::shared_ptr<Context> context, StreamHandle zeroing, int64_t chunk, Address base,
               int64_t capacity);

  void Use(int64_t offset, int64_t size) TG_REQUIRES(mutex_);
  Address At(size_t chunk) const { return base_ + chunk * static_cast<Address>(chunk_); }
  // Makes the absent ones of [first, last] the caller's to map; none: all are mapped.
  Missing Claim(size_t first, size_t last, int64_t most);
  absl::Status Map(const Missing& missing);
  absl::Status Obtain(const Missing& missing, std::vector<PhysicalHandle>* memory);
  absl::Status MapAt(const std::vector<size_t>& chunks, const std::vector<PhysicalHandle>& memory);
  // Unmaps up to `count` empty chunks and appends their memory.
  absl::Status TakeEmpty(size_t count, std::vector<PhysicalHandle>* memory);
  // Of those that were used at a look before `look`.
  std::vector<size_t> ClaimEmpty(size_t count, uint64_t look) TG_REQUIRES(mutex_);
  // Unmaps claimed chunks and appends their memory. After an error of `ready`, or of the driver,
  // the rest stays mapped.
  absl::Status Unmap(const std::vector<size_t>& chunks, absl::Status ready,
                     std::vector<PhysicalHandle>* memory);
  absl::StatusOr<int64_t> GiveBackSome(uint64_t look);
  // Waits until no thread unmaps chunks or gives them back; whether one did.
  bool AwaitOthers();
  absl::Status Release(const std::vector<PhysicalHandle>& memory);

  const std::shared_ptr<Context> context_;
  const StreamHandle zeroing_;
  const int64_t chunk_;  // bytes
  const Address base_;
  const int64_t capacity_;

  mutable Mutex mutex_;  // never held during a call of the library
  Suballocator offsets_ TG_GUARDED_BY(mutex_);
  std::vector<Chunk> chunks_ TG_GUARDED_BY(mutex_);
  uint64_t look_ TG_GUARDED_BY(mutex_) = 1;  // the next one for idle chunks
  int64_t held_ TG_GUARDED_BY(mutex_) = 0;   // chunks of memory, also what is about to be made
  int unmapping_ TG_GUARDED_BY(mutex_) = 0;  // threads
  bool dropped_ TG_GUARDED_BY(mutex_) = false;
  ConditionVariable changed_;
};

}  // namespace telegrad::stream
