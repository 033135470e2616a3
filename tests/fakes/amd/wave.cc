// A wave starts with the registers that the kernel's descriptor asks for. It then runs one
// instruction after another, each after a check that no load into its registers is pending,
// until its turn, the budget or the kernel ends, or a check fails.
#include "tests/fakes/amd/wave.h"

#include <algorithm>

#include "tests/fakes/amd/row.h"
#include "tests/fakes/amd/text.h"
#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

// Bits of the descriptor (LLVM, AMDGPU usage, "Kernel Descriptor").
constexpr uint16_t kPrivateBuffer = 1 << 0;
constexpr uint16_t kDispatchPointer = 1 << 1;
constexpr uint16_t kQueuePointer = 1 << 2;
constexpr uint16_t kKernargPointer = 1 << 3;
constexpr uint16_t kDispatchId = 1 << 4;
constexpr uint16_t kFlatScratchInit = 1 << 5;

}  // namespace

Wave::Wave(Workgroup* group, const KernelCode& code, uint32_t index)
    : group_(group), code_(code), index_(index), lanes_(code.lanes) {
  vectors_.resize(size_t{kVectors} * kMaxLanes);
  scratch_bytes_ = code.descriptor.private_bytes;
  scratch_.resize(scratch_bytes_ * lanes_);
  scratch_state_.resize(scratch_bytes_ * lanes_);
}

const Target& Wave::target() const { return group_->state().code->target; }

void Wave::Start(uint32_t threads) {
  state_ = State::kRuns;
  pc_ = 0;
  signalled = false;
  undefined_.fill(~uint64_t{0});
  scalar_undefined_.fill(~uint32_t{0});
  counters_.Reset();
  std::fill(scratch_state_.begin(), scratch_state_.end(), uint8_t{0});
  const Descriptor& descriptor = code_.descriptor;

  // Scalar registers: what the user of the queue gives, in this order, then what the hardware adds.
  uint32_t at = 0;
  const auto put = [&](uint64_t value, uint32_t words) {
    for (uint32_t w = 0; w < words; ++w) PutWord(at++, static_cast<uint32_t>(value >> (32 * w)));
  };
  if ((descriptor.properties & kPrivateBuffer) != 0) {
    // A buffer for scratch; instructions on it are known by its base.
    put(kPrivateWindow, 2);
    put(~uint64_t{0}, 2);
  }
  if ((descriptor.properties & kDispatchPointer) != 0) at += 2;  // stays undefined
  if ((descriptor.properties & kQueuePointer) != 0) at += 2;
  if ((descriptor.properties & kKernargPointer) != 0) put(kKernargBase, 2);
  if ((descriptor.properties & kDispatchId) != 0) at += 2;
  if ((descriptor.properties & kFlatScratchInit) != 0) put(0, 2);
  at = (descriptor.rsrc2 >> 1) & 31;
  const std::array<uint32_t, 3>& id = group_->id();
  if (target().major >= 12) {
    PutWord(kTrap + 9, id[0]);
    PutWord(kTrap + 7, id[1] | id[2] << 16);
  } else {
    for (uint32_t axis = 0; axis < 3; ++axis) {
      if ((descriptor.rsrc2 >> (7 + axis) & 1) != 0) put(id[axis], 1);
    }
  }
  if ((descriptor.rsrc2 & 1) != 0 && !target().architected_scratch) put(0, 1);
  PutScalar({.kind = Operand::Kind::kScalar, .words = 2, .reg = kSharedBase}, kSharedWindow);
  PutScalar({.kind = Operand::Kind::kScalar, .words = 2, .reg = kPrivateBase}, kPrivateWindow);
  PutWord(kFlatScratch, 0);
  PutWord(kFlatScratch + 1, 0);
  for (uint32_t r = kNull; r < kScc; ++r) scalars_[r] = scalar_undefined_[r] = 0;

  // The number of each thread: 10 bits an axis, of as many axes as the kernel uses.
  const Launch& launch = *group_->state().launch;
  const uint32_t axes = descriptor.rsrc2 >> 11 & 3;
  for (uint32_t lane = 0; lane < threads; ++lane) {
    const uint32_t thread = index_ * lanes_ + lane;
    const uint32_t x = thread % launch.block[0];
    const uint32_t y = thread / launch.block[0] % launch.block[1];
    const uint32_t z = thread / launch.block[0] / launch.block[1];
    Vector(0)[lane] = x | (axes >= 1 ? y << 10 : 0) | (axes >= 2 ? z << 20 : 0);
  }
  SetExec(threads == 64 ? ~uint64_t{0} : (uint64_t{1} << threads) - 1);
  undefined_[0] = ~exec_;
}

void Wave::Run(uint64_t slice) {
  LaunchState& state = group_->state();
  for (; state_ == State::kRuns && slice != 0; --slice) {
    const Instruction& i = code_.instructions[pc_];
    if (state.budget == 0) {
      return Fail(FaultCode::kTimeout, i, -1, "the budget of instructions is used up");
    }
    --state.budget;
    serial_ = ++state.serial;
    if (counters_.any()) CheckPending(i);
    next_ = pc_ + 1;
    writes_ = exec_;
    passed_ = 0;
    passed_high_ = 0;
    if (!failed()) i.execute(*this, i);
    if ((scalar_undefined_[kExec] | (lanes_ == 64 ? scalar_undefined_[kExec + 1] : 0)) != 0) {
      Fail(FaultCode::kIllegalInstruction, i, -1, "the mask of active lanes becomes undefined");
    }
    if (failed()) return;
    pc_ = next_;
    if (state_ == State::kRuns && pc_ >= code_.instructions.size()) {
      return Fail(FaultCode::kIllegalInstruction, i, -1, "runs off the end of the kernel");
    }
  }
}

void Wave::CheckPending(const Instruction& i) {
  for (const RegisterRange& range : i.touched) {
    for (uint32_t reg = range.first; reg < uint32_t{range.first} + range.words; ++reg) {
      if (range.scalar ? !counters_.scalar_pending(reg) : !counters_.vector_pending(reg)) continue;
      if (range.written && i.loads &&
          counters_.OnlyInOrder(reg, static_cast<Counter>(i.counter),
                                static_cast<EventKind>(i.event))) {
        continue;
      }
      const Instruction& load = code_.instructions[counters_.LoadOf(reg, range.scalar)];
      return Fail(FaultCode::kIllegalInstruction, i, -1,
                  (range.written ? "writes " : "reads ") + std::string(range.scalar ? "s" : "v") +
                      std::to_string(reg) + " before a wait covers the load \"" + load.text +
                      "\" at " + Hex(load.address));
    }
  }
}

std::string Wave::Position() const {
  const Instruction& i = code_.instructions[std::min<size_t>(pc_, code_.instructions.size() - 1)];
  return "wave " + std::to_string(index_) + " at " + Hex(i.address) + " \"" + i.text + "\"";
}

void Wave::Fail(FaultCode code, const Instruction& i, int lane, const std::string& what) {
  LaunchState& state = group_->state();
  if (state.fault.code != FaultCode::kNone) return;
  const std::array<uint32_t, 3>& id = group_->id();
  std::string text = state.launch->kernel->name + " at " + Hex(i.address) + " \"" + i.text +
                     "\", workgroup " + std::to_string(id[0]) + "," + std::to_string(id[1]) + "," +
                     std::to_string(id[2]) + ", wave " + std::to_string(index_);
  if (lane >= 0) text += ", lane " + std::to_string(lane);
  state.fault = {.code = code, .message = text + ": " + what};
}

bool Wave::failed() const { return group_->state().fault.code != FaultCode::kNone; }

void Wave::SetExec(uint64_t mask) {
  PutWord(kExec, static_cast<uint32_t>(mask));
  if (lanes_ == 64) PutWord(kExec + 1, static_cast<uint32_t>(mask >> 32));
}

void Wave::PutWord(uint32_t reg, uint32_t value, uint32_t undefined) {
  if (reg >= kNull && reg < kScc) return;
  scalars_[reg] = value;
  scalar_undefined_[reg] = undefined;
  if (reg == kExec || reg == kExec + 1) {
    exec_ = scalars_[kExec] | (lanes_ == 64 ? uint64_t{scalars_[kExec + 1]} << 32 : 0);
  }
}

void Wave::PutScalar(const Operand& operand, uint64_t value, uint64_t undefined) {
  PutWord(operand.reg, static_cast<uint32_t>(value), static_cast<uint32_t>(undefined));
  if (operand.words < 2) return;
  PutWord(operand.reg + 1u, static_cast<uint32_t>(value >> 32),
          static_cast<uint32_t>(undefined >> 32));
}

uint64_t Wave::ScalarBits(const Operand& operand, uint64_t* undefined) {
  *undefined = 0;
  if (operand.kind == Operand::Kind::kConstant) return operand.constant;
  uint64_t value = scalars_[operand.reg];
  *undefined = scalar_undefined_[operand.reg];
  if (operand.words > 1) {
    value |= uint64_t{scalars_[operand.reg + 1u]} << 32;
    *undefined |= uint64_t{scalar_undefined_[operand.reg + 1u]} << 32;
  }
  return value;
}

uint64_t Wave::Scalar(const Instruction& i, const Operand& operand) {
  uint64_t undefined = 0;
  const uint64_t value = ScalarBits(operand, &undefined);
  if (undefined != 0) {
    Fail(FaultCode::kIllegalInstruction, i, -1,
         "reads s" + std::to_string(operand.reg) + ", which has no defined value");
  }
  return value;
}

bool Wave::Scc(const Instruction& i) {
  if (scalar_undefined_[kScc] != 0) {
    Fail(FaultCode::kIllegalInstruction, i, -1, "reads scc, which has no defined value");
  }
  return scalars_[kScc] != 0;
}

}  // namespace fakeamd
