// Waves run in turns of a number of instructions. When none can run, all of them have to be at
// the barrier, which then releases them.
#include "tests/fakes/amd/workgroup.h"

#include <algorithm>

namespace fakeamd {
namespace {

// Instructions of a wave before another has its turn, so that waves which wait for each other in
// loops get on.
constexpr uint64_t kSlice = 20000;

}  // namespace

Workgroup::Workgroup(LaunchState* state) : state_(state) {
  const Launch& launch = *state->launch;
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  const uint64_t lanes = state->kernel->lanes;
  for (uint32_t w = 0; w < (threads + lanes - 1) / lanes; ++w) {
    waves_.push_back(std::make_unique<Wave>(this, *state->kernel, w));
  }
  const uint64_t bytes =
      uint64_t{state->kernel->descriptor.group_bytes} + launch.dynamic_group_bytes;
  local_.resize(bytes);
  local_state_.resize(bytes);
}

Accessor Workgroup::WhoIs(const Wave& wave) const {
  return {.group_begin = begin_,
          .now = state_->time,
          .wave = static_cast<uint8_t>(wave.index()),
          .serial = wave.serial()};
}

void Workgroup::Run(const std::array<uint32_t, 3>& id) {
  id_ = id;
  begin_ = ++state_->time;
  std::fill(local_state_.begin(), local_state_.end(), uint8_t{0});
  local_shadow_ = std::make_unique<Shadow>(local_.size());
  const Launch& launch = *state_->launch;
  uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  for (auto& wave : waves_) {
    const uint32_t here = std::min(threads, state_->kernel->lanes);
    wave->Start(here);
    threads -= here;
  }
  while (true) {
    bool ended = true;
    bool ran = false;
    for (auto& wave : waves_) {
      if (wave->state() == Wave::State::kRuns) {
        ran = true;
        wave->Run(kSlice);
      }
      if (state_->fault.code != FaultCode::kNone) return;
      ended &= wave->state() == Wave::State::kEnded;
    }
    if (ended) return;
    if (!ran && !ReleaseBarrier()) return;
  }
}

// No wave runs: all of them have to be at the barrier.
bool Workgroup::ReleaseBarrier() {
  for (const auto& wave : waves_) {
    if (wave->state() != Wave::State::kEnded) continue;
    std::string who;
    for (const auto& other : waves_) {
      if (other->state() == Wave::State::kWaits) who = other->Position();
    }
    state_->fault = {.code = FaultCode::kLaunchFailed,
                     .message = "wave " + std::to_string(wave->index()) +
                                " has ended while others wait at a barrier: " + who};
    return false;
  }
  ++state_->time;
  for (auto& wave : waves_) wave->Release();
  return true;
}

}  // namespace fakeamd
