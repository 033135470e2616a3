// How lanes of a warp take turns. Memory accesses are in warp_memory.cc.
#include "tests/fakes/cuda/ptx/warp.h"

#include <algorithm>

#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {

Warp::Warp(Workgroup* group, const Kernel& kernel, int index)
    : group_(group), kernel_(kernel), index_(index) {
  // Registers that are read before they are written hold what nobody expects.
  constexpr uint64_t kGarbage = 0xcdcdcdcdcdcdcdcd;
  registers_.assign(size_t{kernel.slots} * kLanes, kGarbage);
  for (uint32_t slot = 0; slot < kernel.register_bits.size(); ++slot) {
    const int bits = kernel.register_bits[slot];
    if (bits < 64) std::fill_n(Slot(slot), kLanes, kGarbage & ((uint64_t{1} << bits) - 1));
  }
  local_.assign(kernel.local_bytes * kLanes, 0xcd);
  for (const auto& [slot, value] : kernel.constants) {
    std::fill_n(Slot(slot), kLanes, value);
  }
}

void Warp::Start(int threads) {
  live_ = threads >= kLanes ? kAllLanes : (uint32_t{1} << threads) - 1;
  blocked_ = 0;
  trying_ = 0;
  pc_.fill(0);
  const uint32_t begin = group_->launch().clock;
  clocks_ = {.block_begin = begin, .own = begin, .synced = begin};
  for (auto& copies : open_) copies.clear();
  for (auto& copies : committed_) copies.clear();
  stores_.Clear();
  const LaunchShape& shape = group_->launch().shape;
  for (const SpecialSlot& special : kernel_.specials) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto thread = static_cast<uint32_t>(index_ * kLanes + lane);
      const auto axis = static_cast<size_t>(special.axis);
      const std::array<uint32_t, 3> tid = {thread % shape.block[0],
                                           thread / shape.block[0] % shape.block[1],
                                           thread / shape.block[0] / shape.block[1]};
      const uint32_t eq = uint32_t{1} << lane;
      const std::array<uint32_t, 5> masks = {eq, eq - 1, eq | (eq - 1), ~(eq | (eq - 1)),
                                             ~(eq - 1)};
      uint32_t value = 0;
      switch (special.what) {
        case Special::kTid:
          value = tid[axis];
          break;
        case Special::kNtid:
          value = shape.block[axis];
          break;
        case Special::kCtaid:
          value = group_->block()[axis];
          break;
        case Special::kNctaid:
          value = shape.grid[axis];
          break;
        case Special::kLane:
          value = static_cast<uint32_t>(lane);
          break;
        case Special::kWarp:
          value = static_cast<uint32_t>(index_);
          break;
        case Special::kWarps:
          value = static_cast<uint32_t>(group_->warps());
          break;
        case Special::kLaneMask:
          value = masks[axis];
          break;
      }
      Slot(special.slot)[lane] = value;
    }
  }
}

uint32_t Warp::Guarded(const Instruction& i, uint32_t lanes) {
  const uint64_t* guard = Slot(static_cast<uint32_t>(i.guard));
  uint32_t set = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    set |= static_cast<uint32_t>(guard[lane] & 1) << lane;
  }
  return lanes & (i.guard_negated ? ~set : set);
}

void Warp::SetPc(uint32_t lanes, uint32_t pc) {
  Each(lanes, [&](int lane) { pc_[static_cast<size_t>(lane)] = pc; });
}

void Warp::Spend(uint64_t instructions) {
  Launch& launch = group_->launch();
  launch.instructions += instructions;
  if (launch.budget >= instructions) {
    launch.budget -= instructions;
    return;
  }
  if (!failed()) {
    launch.fault = {FaultCode::kLaunchTimeout,
                    "kernel " + kernel_.name + ": ran for too many instructions"};
  }
}

bool Warp::Run() {
  bool ran = false;
  while (!failed()) {
    const uint32_t runnable = live_ & ~blocked_ & ~trying_;
    if (runnable == 0) break;
    ran = true;
    uint32_t lowest = ~uint32_t{0};
    Each(runnable, [&](int l) { lowest = std::min(lowest, pc_[static_cast<size_t>(l)]); });
    uint32_t lanes = 0;
    Each(runnable, [&](int l) {
      if (pc_[static_cast<size_t>(l)] == lowest) lanes |= uint32_t{1} << l;
    });
    RunTogether(lanes);
  }
  return ran;
}

// Runs lanes that are at the same instruction until they part, wait, end, or come to where others
// are.
void Warp::RunTogether(uint32_t lanes) {
  uint32_t pc = pc_[static_cast<size_t>(std::countr_zero(lanes))];
  uint32_t others = ~uint32_t{0};
  Each(live_ & ~blocked_ & ~trying_ & ~lanes,
       [&](int l) { others = std::min(others, pc_[static_cast<size_t>(l)]); });
  const auto count = static_cast<uint64_t>(std::popcount(lanes));
  auto& counted = group_->launch().counts.instructions;
  uint64_t spent = 0;
  bool stay = true;
  while (stay) {
    const Instruction& i = kernel_.code[pc];
    const uint32_t active = i.guard < 0 ? lanes : Guarded(i, lanes);
    spent += count;
    ++counted[static_cast<size_t>(i.kind)];
    if (spent > 65536) {
      Spend(spent);
      spent = 0;
      if (failed()) return;
    }
    switch (i.flow) {
      case Flow::kNext:
        if (active != 0) i.execute(*this, i, active);
        ++pc;
        stay = pc < others && !failed();
        if (!stay) SetPc(lanes, pc);
        break;
      case Flow::kBranch:
        if (active == lanes) {
          stay = i.target < others;
          pc = i.target;
          if (!stay) SetPc(lanes, pc);
        } else if (active == 0) {
          stay = ++pc < others;
          if (!stay) SetPc(lanes, pc);
        } else {
          SetPc(active, i.target);
          SetPc(lanes & ~active, pc + 1);
          stay = false;
        }
        break;
      case Flow::kBranchTable: {
        SetPc(lanes & ~active, pc + 1);
        const auto& table = kernel_.tables[i.target];
        const uint64_t* index = Slot(i.slot[0]);
        Each(active, [&](int l) {
          if (index[l] >= table.size()) {
            Fail(FaultCode::kLaunchFailed, i, l, "a branch index beyond its table");
          } else {
            pc_[static_cast<size_t>(l)] = table[index[l]];
          }
        });
        stay = false;
        break;
      }
      case Flow::kExit:
        live_ &= ~active;
        SetPc(lanes & ~active, pc + 1);
        stay = false;
        break;
      case Flow::kBarrier:
        SetPc(lanes & ~active, pc + 1);
        SetPc(active, pc);
        blocked_ |= active;
        stay = false;
        break;
      case Flow::kCollective:
        SetPc(lanes & ~active, pc + 1);
        SetPc(active, pc);
        if (active != 0) Collective(i, pc, active);
        stay = false;
        break;
      case Flow::kTryWait: {
        SetPc(lanes, pc + 1);
        if (active != 0) i.execute(*this, i, active);
        const uint64_t* done = Slot(i.slot[0]);
        Each(active, [&](int l) {
          if ((done[l] & 1) == 0) trying_ |= uint32_t{1} << l;
        });
        stay = false;
        break;
      }
    }
  }
  Spend(spent);
}

// Lanes come to an instruction that the lanes of a mask execute together. They wait there until the
// last one is in.
bool Warp::Collective(const Instruction& i, uint32_t pc, uint32_t lanes) {
  blocked_ |= lanes;
  uint32_t here = 0;
  Each(live_ & blocked_, [&](int l) {
    if (pc_[static_cast<size_t>(l)] == pc) here |= uint32_t{1} << l;
  });
  uint32_t left = lanes;
  while (left != 0 && !failed()) {
    const int first = std::countr_zero(left);
    const uint32_t members =
        i.whole_warp ? kAllLanes : static_cast<uint32_t>(Slot(i.slot[0])[first]);
    if ((members >> first & 1) == 0) {
      Fail(FaultCode::kLaunchFailed, i, first, "a lane that is not in its own member mask");
      return false;
    }
    if ((members & ~live_) != 0) {
      Fail(FaultCode::kLaunchFailed, i, std::countr_zero(members & ~live_),
           "lanes of the member mask have ended or do not exist");
      return false;
    }
    left &= ~members;
    if ((here & members) != members) continue;
    bool same = true;
    if (!i.whole_warp) {
      Each(members, [&](int l) { same &= static_cast<uint32_t>(Slot(i.slot[0])[l]) == members; });
    }
    if (!same) {
      Fail(FaultCode::kLaunchFailed, i, first, "lanes name different member masks");
      return false;
    }
    blocked_ &= ~members;
    i.execute(*this, i, members);
    SetPc(members, pc + 1);
  }
  return true;
}

const Instruction* Warp::AtBarrier() const {
  if (live_ == 0 || (live_ & ~blocked_) != 0) return nullptr;
  const uint32_t pc = pc_[static_cast<size_t>(std::countr_zero(live_))];
  bool same = kernel_.code[pc].flow == Flow::kBarrier;
  Each(live_, [&](int l) { same &= pc_[static_cast<size_t>(l)] == pc; });
  return same ? &kernel_.code[pc] : nullptr;
}

void Warp::PassBarrier() {
  Each(live_, [&](int l) { ++pc_[static_cast<size_t>(l)]; });
  blocked_ = 0;
}

std::string Warp::Waiting() const {
  std::string text;
  uint32_t left = live_;
  while (left != 0) {
    const uint32_t pc = pc_[static_cast<size_t>(std::countr_zero(left))];
    uint32_t here = 0;
    Each(left, [&](int l) {
      if (pc_[static_cast<size_t>(l)] == pc) here |= uint32_t{1} << l;
    });
    left &= ~here;
    text += "; warp " + std::to_string(index_) + ": " + std::to_string(std::popcount(here)) +
            " lanes at line " + std::to_string(kernel_.code[pc].line);
  }
  return text;
}

bool Warp::failed() const { return group_->launch().fault.code != FaultCode::kNone; }

void Warp::Fail(FaultCode code, const Instruction& i, int lane, const std::string& what) {
  if (failed()) return;
  const auto& block = group_->block();
  group_->launch().fault = {code, "kernel " + kernel_.name + ", line " + std::to_string(i.line) +
                                      ", workgroup (" + std::to_string(block[0]) + ", " +
                                      std::to_string(block[1]) + ", " + std::to_string(block[2]) +
                                      "), thread " + std::to_string(index_ * kLanes + lane) + ": " +
                                      what};
}

}  // namespace fakecuda
