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

// PTX ISA, "mbarrier": phases that complete when all expected arrivals are in.
struct PhaseBarrier {
  uint32_t expected = 0;
  uint32_t pending = 0;
  uint64_t phase = 0;
  std::array<uint32_t, kMaxWarps> arriving = {};   // what the arrivals of this phase publish
  std::array<uint32_t, kMaxWarps> completed = {};  // of the phases before it
  std::array<uint64_t, kMaxWarps> denied = {};  // the last phase that a warp was told it is not in
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
  enum ByteState : uint8_t { kUnwritten = 0, kWritten = 1, kPending = 2, kBarrierByte = 3 };
  uint64_t shared_bytes() const { return shared_.size(); }
  uint8_t* shared(uint64_t offset) { return &shared_[offset]; }
  uint8_t* state(uint64_t offset) { return &state_[offset]; }
  Shadow& shared_shadow() { return *shared_shadow_; }

  std::map<uint64_t, PhaseBarrier>& phase_barriers() { return phase_barriers_; }
  // Something happened that threads in a loop around a test may wait for.
  void Progress() { ++progress_; }

 private:
  bool ReleaseBarriers();

  Launch* launch_;
  std::array<uint32_t, 3> block_ = {};
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<uint8_t> shared_;
  std::vector<uint8_t> state_;
  std::unique_ptr<Shadow> shared_shadow_;
  std::map<uint64_t, PhaseBarrier> phase_barriers_;
  uint64_t progress_ = 0;
};

}  // namespace fakecuda
