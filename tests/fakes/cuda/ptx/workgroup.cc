// Warps run in turns. A barrier is released when all that it waits for have arrived. When no
// warp can continue, that is a deadlock, which is a fault.
#include "tests/fakes/cuda/ptx/workgroup.h"

#include <algorithm>

namespace fakecuda {

namespace {

constexpr int kVain = 1000;

}  // namespace

Workgroup::Workgroup(Launch* launch) : launch_(launch) {
  const uint64_t shared = launch->kernel->shared_bytes + launch->shape.dynamic_shared;
  shared_.resize(shared);
  state_.resize(shared);
  writer_.resize(shared);
  const int count = static_cast<int>((launch->threads() + kLanes - 1) / kLanes);
  for (int i = 0; i < count; ++i) {
    warps_.push_back(std::make_unique<Warp>(this, *launch->kernel, i));
  }
}

void Workgroup::Run(const std::array<uint32_t, 3>& block) {
  block_ = block;
  std::fill(shared_.begin(), shared_.end(), 0xcd);
  std::fill(state_.begin(), state_.end(), kUnwritten);
  shared_shadow_ = std::make_unique<Shadow>(shared_.size());
  phase_barriers_.clear();
  copier_clock_ = launch_->clock;
  int64_t threads = static_cast<int64_t>(launch_->threads());
  for (auto& warp : warps_) {
    warp->Start(static_cast<int>(std::min<int64_t>(threads, kLanes)));
    threads -= kLanes;
  }
  uint64_t progress = progress_;
  int vain = 0;  // turns in which threads only tested what did not change
  while (launch_->fault.code == FaultCode::kNone) {
    bool ran = false;
    for (auto& warp : warps_) ran |= warp->Run();
    if (launch_->fault.code != FaultCode::kNone) return;
    const bool released = ReleaseBarriers();
    vain = released || progress != progress_ ? 0 : vain + 1;
    progress = progress_;
    bool live = false;
    bool trying = false;
    for (auto& warp : warps_) {
      live |= warp->live() != 0;
      trying |= warp->trying();
      warp->WakeTrying();
    }
    if (!live) break;
    if ((!ran && !released && !trying) || vain > kVain) {
      std::string where;
      for (const auto& warp : warps_) where += warp->Waiting();
      launch_->fault = {FaultCode::kLaunchTimeout, "kernel " + launch_->kernel->name +
                                                       ": threads wait for each other" + where};
    }
  }
  for (const auto& warp : warps_) launch_->clock = std::max(launch_->clock, warp->clocks().own + 1);
  launch_->clock = std::max(launch_->clock, copier_clock_ + 1);
  FinishCopies();
}

void Workgroup::FinishCopies() {
  if (launch_->fault.code != FaultCode::kNone) return;
  int line = 0;
  for (const auto& [offset, barrier] : phase_barriers_) {
    if (!barrier.copies.empty()) line = barrier.copies[0].line;
  }
  for (auto& warp : warps_) {
    if (line == 0) line = warp->stores().Finish();
  }
  if (line == 0) return;
  launch_->fault = {FaultCode::kLaunchFailed,
                    "kernel " + launch_->kernel->name + ", line " + std::to_string(line) +
                        ": a bulk copy was in flight when the workgroup ended"};
}

void Workgroup::FenceForCopies(int warp) {
  for (size_t i = 0; i < state_.size(); ++i) {
    if (state_[i] == kWritten && writer_[i] == warp) state_[i] = kVisible;
  }
}

// PTX ISA, "bar": without a count all threads that have not ended take part; with one, that many,
// whole warps. bar.arrive counts and does not wait.
bool Workgroup::ReleaseBarriers() {
  struct Waiting {
    std::vector<Warp*> warps;
    uint64_t threads = 0;  // as stated; 0: all
    bool differ = false;
  };
  std::map<uint64_t, Waiting> barriers;
  size_t live = 0;
  for (auto& warp : warps_) {
    live += warp->live() != 0 ? 1 : 0;
    const Instruction* at = warp->AtBarrier();
    if (at == nullptr) continue;
    const int lane = std::countr_zero(warp->live());
    const uint64_t id = warp->Slot(at->slot[0])[lane];
    const uint64_t threads = at->count != 0 ? warp->Slot(at->slot[1])[lane] : 0;
    if (id >= 16 || threads % kLanes != 0) {
      warp->Fail(FaultCode::kLaunchFailed, *at, lane,
                 "a barrier beyond 15 or for a part of a warp");
      return false;
    }
    Waiting& waiting = barriers[id];
    waiting.differ |= !waiting.warps.empty() && waiting.threads != threads;
    waiting.threads = threads;
    waiting.warps.push_back(warp.get());
    if (waiting.differ) {
      warp->Fail(FaultCode::kLaunchFailed, *at, lane,
                 "threads wait at a barrier with different counts");
      return false;
    }
  }
  bool released = false;
  for (auto& [id, waiting] : barriers) {
    const size_t expected = waiting.threads == 0 ? live : waiting.threads / kLanes;
    if (waiting.warps.size() < expected) continue;
    if (waiting.warps.size() > expected) {
      Warp* warp = waiting.warps.back();
      warp->Fail(FaultCode::kLaunchFailed, *warp->AtBarrier(), 0,
                 "more threads at a barrier than it counts");
      return false;
    }
    std::array<uint32_t, kClocks> all = {};
    for (Warp* warp : waiting.warps) {
      const auto published = warp->clocks().Publish(warp->index());
      for (size_t i = 0; i < all.size(); ++i) all[i] = std::max(all[i], published[i]);
    }
    for (Warp* warp : waiting.warps) {
      warp->clocks().Learn(all);
      warp->clocks().synced = warp->clocks().own;
      warp->PassBarrier();
    }
    released = true;
  }
  return released;
}

}  // namespace fakecuda
