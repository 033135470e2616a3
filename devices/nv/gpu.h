// One GPU as the device uses it, brought up once: its objects, its memory, its semaphores and
// its channels. A GPU whose channel faults is lost: it is not used any more, and a new Gpu, with
// objects of its own, replaces it (nv_device.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/hcq/range_heap.h"
#include "devices/nv/gpu_objects.h"
#include "devices/nv/heap.h"
#include "devices/nv/pinned_pages.h"
#include "devices/nv/region.h"
#include "engine/base/mutex.h"

namespace telegrad::nv {

class Channel;

struct GpuLimits {
  uint32_t ring_entries = 8192;   // of each channel; a power of two
  size_t words_bytes = 2 << 20;   // of each channel's methods
  size_t data_bytes = 8 << 20;    // of what its launches read
  size_t video_chunk = 32 << 20;  // that small allocations share
  // A channel that frees nothing for so long is taken for stuck.
  int64_t hang_ns = 300'000'000'000;
};

// What the GPU has, as its driver says.
struct GpuFacts {
  std::string name;
  int processors = 0;
  int processors_per_tpc = 0, warps_per_processor = 0, most_tpcs = 0;
  int64_t memory_bytes = 0, free_bytes = 0;
};

// Thread-safe, but for Open and Close.
class Gpu {
 public:
  static constexpr int kChannels = 3;  // for programs, for copies, for zeroing

  // `name`: for messages, "NV:0". UNAVAILABLE or what the driver said; nothing is left then.
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(hcq::SysOps& system, int number,
                                                   std::string name, const GpuLimits& limits);
  // Stops the GPU's channels and gives everything back; what could not be, with the reason. Calls
  // after it fail.
  std::vector<std::string> Close();
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const std::string& name() const { return name_; }
  const GpuFacts& facts() const { return facts_; }
  const GpuLimits& limits() const { return limits_; }
  hcq::SysOps& system() { return objects_.rm().system(); }

  // OK while no channel has an error and it is not closed: looks at the error notifiers.
  absl::Status Check();
  void Lose(const absl::Status& why);

  Heap& video() { return video_; }        // for data; the host cannot address it
  Heap& commands() { return commands_; }  // code and what channels read; the host writes it
  Heap& pinned() { return pinned_; }      // of the host
  Heap& semaphores() { return semaphores_; }

  // As PinnedPages has them.
  absl::Status PinPages(std::byte* at, size_t bytes);
  absl::Status UnpinPages(const void* at);
  // The GPU's address of `bytes` of pinned() or of pinned pages; 0: they are neither.
  uint64_t AddressOf(const void* host, size_t bytes) const;

  // A block's size by its address.
  void Remember(const Block& block);
  std::optional<Block> Forget(uint64_t address);

  // Holds what a handle stands for until it is dropped; else it goes with the GPU, for of one that
  // is stuck nothing is destroyed.
  void Keep(std::shared_ptr<void> object);
  void Drop(const void* object);

  // A channel that nobody has; RESOURCE_EXHAUSTED: all are taken.
  absl::StatusOr<Channel*> TakeChannel();
  // Once it is idle.
  void ReturnChannel(Channel* channel);
  void RingDoorbell(uint32_t token) { system().StoreDoorbell(objects_.doorbell(), token); }

  // Whoever reads words that the GPU writes, or pins pages, and is not stopped before Close, holds
  // this meanwhile.
  SharedMutex& closing() { return closing_; }

  // Memory for the stacks of programs: where it is, and bytes of each pair of processors.
  struct Stacks {
    uint64_t address = 0, bytes_per_tpc = 0;
  };
  // Makes room for stacks of `bytes` a thread. What was there before stays until Close, for
  // programs may be running on it.
  absl::Status HoldStacks(uint32_t bytes);
  Stacks stacks() const;

 private:
  Gpu(hcq::SysOps& system, int number, std::string name, const GpuLimits& limits);

  absl::Status BringUp();
  absl::Status AskFacts();
  absl::Status MakeChannels();
  // What `make` allocates, with an address.
  absl::StatusOr<std::unique_ptr<OwnedRegion>> Grow(
      const std::function<absl::StatusOr<Region>(RmClient&)>& make);
  void GiveAddresses(const Region& region);

  const std::string name_;
  const GpuLimits limits_;
  GpuObjects objects_;
  GpuFacts facts_;

  Mutex addresses_mutex_;
  hcq::RangeHeap addresses_ TG_GUARDED_BY(addresses_mutex_);
  Heap video_, commands_, pinned_, semaphores_;
  PinnedPages pages_;

  std::vector<Region> notifiers_;  // one for each channel
  std::vector<std::unique_ptr<Channel>> channels_;

  SharedMutex closing_;
  mutable Mutex mutex_;
  std::map<uint64_t, Block> blocks_ TG_GUARDED_BY(mutex_);
  std::vector<Channel*> free_channels_ TG_GUARDED_BY(mutex_);
  absl::Status lost_ TG_GUARDED_BY(mutex_);
  Stacks stacks_ TG_GUARDED_BY(mutex_);
  bool scheduled_ TG_GUARDED_BY(mutex_) = false;
  bool closed_ TG_GUARDED_BY(mutex_) = false;

  Mutex kept_mutex_;
  // Last: they give back to what is above.
  std::map<const void*, std::shared_ptr<void>> kept_ TG_GUARDED_BY(kept_mutex_);
};

}  // namespace telegrad::nv
