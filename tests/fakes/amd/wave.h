// A wave while it runs: its registers, with what is known of each bit or lane of them, and its way
// to memory. An instruction reads its sources, computes for all lanes, and writes those that are
// active.
//
// What no instruction has written is undefined. Copies copy that, bitwise scalar instructions (LLVM
// merges masks of lanes with them) propagate it bit by bit, and any other use is a fault. A
// register that a load writes may not be touched before a wait covers the load.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakes/amd/code.h"
#include "tests/fakes/amd/counters.h"
#include "tests/fakes/amd/shadow.h"

namespace fakeamd {

class Workgroup;

// The lanes of a 32- or 64-bit value: words of its low and high halves.
struct LaneView {
  const uint32_t* low = nullptr;
  const uint32_t* high = nullptr;
};
using Lanes = uint32_t[kMaxLanes];

class Wave {
 public:
  enum class State : uint8_t { kRuns, kWaits, kEnded };

  Wave(Workgroup* group, const KernelCode& code, uint32_t index);

  // Sets everything for a new workgroup: lanes of threads from 64 * index (or 32 *) on that exist.
  void Start(uint32_t threads);
  // Runs until it ends, waits at a barrier, fails, or has run `slice` instructions.
  void Run(uint64_t slice);

  // --- what instructions use ---
  uint32_t lanes() const { return lanes_; }
  uint64_t exec() const { return exec_; }
  uint64_t all() const { return lanes_ == 64 ? ~uint64_t{0} : 0xffffffff; }
  const KernelCode& code() const { return code_; }
  const Target& target() const;
  Workgroup& group() { return *group_; }
  uint32_t index() const { return index_; }
  Counters& counters() { return counters_; }

  uint32_t* Vector(uint32_t reg) { return &vectors_[size_t{reg} * kMaxLanes]; }
  uint64_t& undefined(uint32_t reg) { return undefined_[reg]; }

  // The lanes of source k as a value of `type`, with its modifiers; what is not in place already is
  // put into `low` and `high`. Fails for undefined lanes, except where the row copies: then they
  // are in passed().
  LaneView Fetch(const Instruction& i, int k, Type type, uint32_t* low, uint32_t* high);
  // Writes the active lanes of result k.
  void Put(const Instruction& i, int k, Type type, uint32_t* low, uint32_t* high);
  void PutMask(const Instruction& i, int k, uint64_t mask);
  // A mask operand; undefined bits of inactive lanes do not matter and are 0.
  uint64_t FetchMask(const Instruction& i, int k);
  uint64_t passed() const { return passed_; }
  void set_passed(uint64_t lanes) { passed_ = lanes; }

  // A scalar operand of up to two words, which must be defined.
  uint64_t Scalar(const Instruction& i, const Operand& operand);
  // The same, with the undefined bits instead of a fault.
  uint64_t ScalarBits(const Operand& operand, uint64_t* undefined);
  void PutScalar(const Operand& operand, uint64_t value, uint64_t undefined = 0);
  void PutWord(uint32_t reg, uint32_t value, uint32_t undefined = 0);
  bool Scc(const Instruction& i);
  void PutScc(bool value, bool defined = true) {
    scalars_[kScc] = value ? 1 : 0;
    scalar_undefined_[kScc] = defined ? 0 : 1;
  }
  void SetExec(uint64_t mask);

  // Control.
  void Jump(uint32_t target) { next_ = target; }
  uint32_t next() const { return next_; }
  void End() { state_ = State::kEnded; }
  void WaitAtBarrier() { state_ = State::kWaits; }
  State state() const { return state_; }
  void Release() { state_ = State::kRuns; }
  std::string Position() const;

  // Memory. All fail with a fault and return null where the access is not allowed.
  uint8_t* Global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes,
                  Access access);
  uint8_t* Local(const Instruction& i, uint32_t lane, uint64_t offset, uint32_t bytes,
                 Access access);
  uint8_t* Scratch(const Instruction& i, uint32_t lane, uint64_t offset, uint32_t bytes);
  // For each byte of scratch of a lane: whether it was written.
  uint8_t* ScratchState(uint32_t lane, uint64_t offset) {
    return &scratch_state_[lane * scratch_bytes_ + offset];
  }
  uint32_t serial() const { return serial_; }
  // Whether the same instruction has written there before the last access: then both values must be
  // equal.
  bool repeated() const { return repeated_; }

  void Fail(FaultCode code, const Instruction& i, int lane, const std::string& what);
  bool failed() const;

  // gfx12: between the two halves of a barrier.
  bool signalled = false;

 private:
  void CheckPending(const Instruction& i);
  bool Move(const Instruction& i, uint32_t* words, uint32_t count, uint64_t* undefined);

  Workgroup* group_;
  const KernelCode& code_;
  uint32_t index_;
  uint32_t lanes_;
  State state_ = State::kRuns;
  uint32_t pc_ = 0;
  uint32_t next_ = 0;
  uint32_t serial_ = 0;
  uint64_t exec_ = 0;
  // Lanes that this instruction writes: active ones without those that DPP excludes.
  uint64_t writes_ = 0;
  uint64_t passed_ = 0;       // undefined lanes that the row copies
  uint64_t passed_high_ = 0;  // those of the upper word alone
  std::vector<uint32_t> vectors_;
  std::array<uint64_t, kVectors> undefined_ = {};
  std::array<uint32_t, kScalars> scalars_ = {};
  std::array<uint32_t, kScalars> scalar_undefined_ = {};
  Counters counters_;
  uint64_t scratch_bytes_ = 0;
  std::vector<uint8_t> scratch_;
  std::vector<uint8_t> scratch_state_;
  size_t last_region_ = 0;
  bool repeated_ = false;
};

}  // namespace fakeamd
