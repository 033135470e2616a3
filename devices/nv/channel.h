// A channel: a ring of entries that point to methods, fetched by the GPU in order. Methods and
// what launches read lie in rings of their own. Each flush ends with a release of the channel's
// 64-bit fence word, and the places of all three rings are free again when that word has reached
// the value of their flush; a thread that finds a ring full waits for the GPU.
//
// Host writes go through a write-combining mapping, so they may reach the GPU late. It learns of
// new entries by the doorbell only, before which they are ordered (SysOps::StoreDoorbell).
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "devices/hcq/fenced_ring.h"
#include "devices/nv/gpu.h"
#include "devices/nv/work.h"
#include "engine/base/mutex.h"

namespace telegrad::nv {

// Thread-safe.
class Channel {
 public:
  struct Parts {
    Region memory;  // rings and control block, mapped for the host
    size_t memory_bytes = 0;
    Handle handle = 0;
    uint32_t token = 0;
    Block semaphores;  // of the host: the fence's, the step's
  };
  static constexpr size_t kSemaphoreBytes = 32;
  static size_t MemoryBytes(const GpuLimits& limits);
  static size_t RingOffset() { return 0; }
  static size_t UserdOffset(const GpuLimits& limits);
  static size_t ZeroedBytes(const GpuLimits& limits);  // that begin with zeros

  Channel(Gpu& gpu, const Parts& parts);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // What comes first on a channel.
  absl::Status Begin();

  // Each is enqueued behind all before, and begins when these have ended; the GPU is told at the
  // next Flush. May wait for room: UNAVAILABLE where the GPU is lost or makes none.
  absl::Status Copy(uint64_t to, uint64_t from, uint64_t bytes);
  absl::Status Fill(uint64_t to, uint8_t value, uint64_t bytes);
  absl::Status Launch(const GridLaunch& launch);
  // Methods that lie elsewhere and stay as they are until they have run.
  absl::Status Replay(uint64_t address, uint64_t words);
  // The word at `address` gets `value` and, 8 bytes behind it, the GPU's time in nanoseconds.
  absl::Status Release(uint64_t address, uint64_t value);
  // The channel stops until the word is at least `value`.
  absl::Status Acquire(uint64_t address, uint64_t value);
  absl::Status Flush();

  // Whether all that was flushed has ended.
  bool IsIdle() const;
  // Flushes and waits until it has; at most for `longest_ns`.
  absl::Status Await(int64_t longest_ns);

  // How often a full ring held somebody up.
  int64_t waits() const;

 private:
  struct Room {
    size_t words = 0;  // offset into the channel's memory
    Block data;
  };

  absl::StatusOr<Room> Reserve(size_t words, size_t data_bytes) TG_REQUIRES(mutex_);
  absl::Status Append(size_t data_bytes, const std::function<void(const Block&)>& build)
      TG_REQUIRES(mutex_);
  void CloseSegment() TG_REQUIRES(mutex_);
  void AddEntry(uint64_t address, uint64_t words) TG_REQUIRES(mutex_);
  void FlushLocked() TG_REQUIRES(mutex_);
  uint64_t Passed() const;

  Step NextStep() TG_REQUIRES(mutex_) { return {parts_.semaphores.address + 16, ++step_}; }

  Gpu& gpu_;
  const Parts parts_;
  const size_t tails_at_, words_at_, data_at_;

  mutable Mutex mutex_;
  PushBuffer push_ TG_GUARDED_BY(mutex_);  // of the operation at hand
  hcq::FencedRing entries_ TG_GUARDED_BY(mutex_);
  hcq::FencedRing words_ TG_GUARDED_BY(mutex_);
  hcq::FencedRing data_ TG_GUARDED_BY(mutex_);
  uint64_t fence_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t step_ TG_GUARDED_BY(mutex_) = 0;
  uint32_t put_ TG_GUARDED_BY(mutex_) = 0;
  // Methods that no entry points to yet: offsets of words.
  size_t segment_ TG_GUARDED_BY(mutex_) = 0;
  size_t segment_end_ TG_GUARDED_BY(mutex_) = 0;
  bool unflushed_ TG_GUARDED_BY(mutex_) = false;
  uint64_t stacks_ TG_GUARDED_BY(mutex_) = 0;  // address of those that the channel knows
  int64_t waits_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace telegrad::nv
