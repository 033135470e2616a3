// A workgroup while it runs: its warps, its shared memory with the state of every byte, its
// barriers.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/fakes/cuda/ptx/launch.h"
#include "tests/fakes/cuda/ptx/warp.h"

namespace fakecuda {

// A bulk copy that was started and is not complete.
struct BulkCopy {
  struct Row {
    uint32_t at = 0;  // byte of the box
    const uint8_t* from = nullptr;
    uint32_t bytes = 0;
  };

  uint64_t to = 0;            // offset in shared memory
  std::vector<uint8_t> fill;  // what the box has where there is no row
  std::vector<Row> rows;
  uint32_t span = 0;   // see TensorMap
  uint32_t clock = 0;  // of its accesses
  int line = 0;
};

// PTX ISA, "mbarrier": phases that complete when all expected arrivals and bytes are in.
struct PhaseBarrier {
  uint32_t expected = 0;
  uint32_t pending = 0;
  int64_t bytes = 0;  // the "tx-count": that are expected and not here, or the reverse
  uint64_t phase = 0;
  std::array<uint32_t, kClocks> arriving = {};   // what the arrivals of this phase publish
  std::array<uint32_t, kClocks> completed = {};  // of the phases before it
  std::array<uint64_t, kClocks> denied = {};     // the last phase that a warp was told it is not in
  int made_by = 0;                               // a warp
  bool fenced = false;                           // so that bulk copies see it
  std::vector<BulkCopy> copies = {};             // that complete here

  // Goes on to the next phase if this one is complete.
  void Advance() {
    if (pending > 0 || bytes != 0) return;
    pending = expected;
    ++phase;
    completed = arriving;
  }
};

class Workgroup {
 public:
  explicit Workgroup(Launch* launch);

  // Runs workgroup `block` of the grid; a fault lands in the launch.
  void Run(const std::array<uint32_t, 3>& block);

  Launch& launch() { return *launch_; }
  const std::array<uint32_t, 3>& block() const { return block_; }
  size_t warps() const { return warps_.size(); }

  // What is known of a byte of shared memory.
  // kVisible: written, also for bulk copies.
  enum ByteState : uint8_t { kUnwritten, kWritten, kPending, kBarrierByte, kVisible };
  uint64_t shared_bytes() const { return shared_.size(); }
  uint8_t* shared(uint64_t offset) { return &shared_[offset]; }
  uint8_t* state(uint64_t offset) { return &state_[offset]; }
  uint8_t* writer(uint64_t offset) { return &writer_[offset]; }  // the last warp
  // PTX ISA, "membar / fence": what the warp has written becomes visible to bulk copies.
  void FenceForCopies(int warp);
  Shadow& shared_shadow() { return *shared_shadow_; }

  std::map<uint64_t, PhaseBarrier>& phase_barriers() { return phase_barriers_; }
  // Of the accesses of a bulk copy that begins.
  uint32_t NextCopierClock() { return ++copier_clock_; }
  // Something happened that threads in a loop around a test may wait for.
  void Progress() { ++progress_; }

 private:
  bool ReleaseBarriers();
  void FinishCopies();

  Launch* launch_;
  std::array<uint32_t, 3> block_ = {};
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<uint8_t> shared_;
  std::vector<uint8_t> state_;
  std::vector<uint8_t> writer_;
  std::unique_ptr<Shadow> shared_shadow_;
  std::map<uint64_t, PhaseBarrier> phase_barriers_;
  uint64_t progress_ = 0;
  uint32_t copier_clock_ = 0;
};

}  // namespace fakecuda
