// A GPU as a Device: a compute queue and copy queues, each a stream, with memory of their own that
// the host cannot address. What a driver knows of it comes as a Description.
//
// A GPU that faults or gets stuck fails: its health says so, everything that it has not ended fails
// with UNAVAILABLE, and it takes no more work. It can be opened again: generation.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/api/locks_host_memory.h"
#include "devices/stream/context.h"
#include "devices/stream/memory.h"
#include "devices/stream/pinned_pool.h"
#include "devices/stream/queue.h"
#include "devices/stream/unloads.h"

namespace telegrad::stream {

struct Description {
  Target target;
  Rates rates;
  int64_t memory_limit = 0;
  int64_t resident_threads = 0;  // that it runs at once, for whose stacks its driver has memory
  bool virtual_memory = false;   // whether addresses can be reserved and memory mapped there
  bool words = false;            // whether streams write words of the host's memory
  int copy_queues = 1;           // as many copies as it does at once, see CopyQueues
};

// Of its queues; see QueueOptions.
struct Limits {
  int queue_capacity = 0;
  absl::Duration wait_limit, hang_limit;
  int64_t pinned = 0;  // bytes of the host that LendPinned may have locked
};

// What work may take of `free` and `total` bytes of memory: `wanted`, or where that is below 1, all
// but a reserve for the driver, which takes memory for code and stacks as it goes.
int64_t MemoryLimit(int64_t wanted, size_t free, size_t total);

// How many copy queues are worth their streams and threads for a GPU of so many copy engines: one
// for each direction between the host and the GPU.
inline int CopyQueues(int engines) { return std::clamp(engines, 1, 2); }

class StreamDevice final : public Device, public LocksHostMemory {
 public:
  static absl::StatusOr<std::unique_ptr<StreamDevice>> Make(std::shared_ptr<Context> context,
                                                            Description description,
                                                            const Limits& limits);
  StreamDevice(std::shared_ptr<Context> context, Description description,
               std::shared_ptr<Memories> memories, std::shared_ptr<PinnedPool> pinned,
               std::vector<std::unique_ptr<StreamQueue>> queues);

  Context& context() const { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }

  const std::string& name() const override { return context_->name(); }
  const Target& target() const override { return description_.target; }
  int64_t memory_limit() const override { return memories_->limit(); }
  int64_t memory_used() const override { return memories_->used(); }
  Rates rates() const override { return description_.rates; }
  int64_t memory_footprint() const override { return memories_->footprint(); }
  std::shared_ptr<IdleMemory> idle_memory() override {
    return memories_->has_arena() ? memories_ : nullptr;
  }
  bool host_visible() const override { return false; }
  PeerAccess AccessTo(const Device& other) const override;
  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override;
  absl::StatusOr<std::shared_ptr<Memory>> AllocOf(MemoryKind kind, int64_t size) override;
  bool Makes(MemoryKind kind) const override { return memories_->Makes(kind); }
  std::shared_ptr<Memory> LendPinned(int64_t size) override;
  absl::StatusOr<std::shared_ptr<Memory>> LockHost(std::shared_ptr<void> pages,
                                                   int64_t size) override;
  absl::StatusOr<std::string> ExportHandle(const Memory& memory) override {
    return memories_->Export(memory);
  }
  absl::StatusOr<std::shared_ptr<Memory>> ImportHandle(std::string_view handle,
                                                       int64_t size) override;
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override;
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override;
  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override { return context_->health(); }

 private:
  const std::shared_ptr<Context> context_;
  const Description description_;
  const std::shared_ptr<Memories> memories_;
  const std::shared_ptr<PinnedPool> pinned_;
  const UnloadThread unloader_;
  std::vector<Queue*> queues_;                             // the next
  const std::vector<std::unique_ptr<StreamQueue>> owned_;  // last: their threads stop first
};

}  // namespace telegrad::stream
