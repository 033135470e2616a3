// cp.async, whose bytes arrive at the wait and not before, and mbarrier (PTX ISA, "cp.async",
// "mbarrier"). A phase publishes what the arriving warps did; the shadow memory takes an arrival of
// a lane as one of its whole warp.
#include <algorithm>
#include <set>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {
namespace {

// slots: to, from, source bytes; `bytes`; the offset of `from` is in flags.
void CopyAsync(Warp& w, const Instruction& i, uint32_t lanes) {
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int l = std::countr_zero(rest);
    const uint64_t source_bytes = std::min<uint64_t>(w.Slot(i.slot[2])[l], i.bytes);
    const AsyncCopy copy = {
        .to = w.Slot(i.slot[0])[l] + static_cast<uint64_t>(i.offset),
        .from = w.Slot(i.slot[1])[l] +
                static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(i.flags))),
        .bytes = i.bytes,
        .source_bytes = static_cast<uint32_t>(source_bytes),
        .line = i.line};
    if (!w.BeginAsync(i, l, copy)) return;
  }
}

void Commit(Warp& w, const Instruction&, uint32_t lanes) {
  Each(lanes, [&](int l) { w.CommitAsync(l); });
}

// `target` groups may stay; `flags`: also what is not committed.
void WaitGroup(Warp& w, const Instruction& i, uint32_t lanes) {
  Each(lanes, [&](int l) { w.WaitAsync(i, l, i.target, i.flags != 0); });
}

bool DecodeCopy(Decoder& d) {
  Instruction& o = d.out();
  d.Expect(d.Take("async"), "only cp.async");
  if (d.Take("commit_group")) {
    d.ExpectOperands(0);
    o.execute = &Commit;
    return true;
  }
  if (d.Take("wait_all")) {
    d.ExpectOperands(0);
    o.flags = 1;
    o.execute = &WaitGroup;
    return true;
  }
  if (d.Take("wait_group")) {
    d.ExpectOperands(1);
    if (d.operands() == 1) {
      d.Expect(d.statement().operands[0].kind == Operand::Kind::kNumber, "a number of groups");
      o.target = static_cast<uint32_t>(d.statement().operands[0].bits);
    }
    o.execute = &WaitGroup;
    return true;
  }
  const int cache = d.TakeOne({"ca", "cg"});
  d.Expect(cache >= 0 && (d.Take("shared") || d.Take("shared::cta")) && d.Take("global"),
           "only from global to shared memory");
  d.TakeOne({"L2::64B", "L2::128B", "L2::256B"});
  d.Expect(d.operands() == 3 || d.operands() == 4, "expected three or four operands");
  if (d.operands() < 3) return true;
  const uint64_t bytes = d.statement().operands[2].bits;
  d.Expect(bytes == 16 || (cache == 0 && (bytes == 4 || bytes == 8)), "no such size");
  o.bytes = static_cast<uint8_t>(bytes);
  d.Address(1, Space::kGlobal, 1);
  o.flags = static_cast<uint32_t>(static_cast<int32_t>(o.offset));
  d.Expect(static_cast<int32_t>(o.flags) == o.offset, "an offset beyond 32 bits");
  d.Address(0, Space::kShared, 0);
  o.slot[2] = d.operands() == 4 ? d.Source(3, Type::kU32) : d.Constant(bytes);
  o.execute = &CopyAsync;
  return true;
}

// The offset of the barrier object in shared memory; false after a fault.
bool BarrierOffset(Warp& w, const Instruction& i, int lane, AccessKind kind, uint64_t* offset) {
  uint64_t address = w.Slot(i.slot[1])[lane] + static_cast<uint64_t>(i.offset);
  if (i.space == Space::kGeneric) address -= kSharedWindow;
  Workgroup& group = w.group();
  if (address % 8 != 0) {
    w.Fail(FaultCode::kMisalignedAddress, i, lane, "a misaligned mbarrier");
    return false;
  }
  if (address < kSharedBegin || address - kSharedBegin + 8 > group.shared_bytes()) {
    w.Fail(FaultCode::kIllegalAddress, i, lane, "an mbarrier outside of shared memory");
    return false;
  }
  *offset = address - kSharedBegin;
  std::string conflict;
  if (!group.shared_shadow().Access(
          *offset, 8, kind, {.clocks = &w.clocks(), .warp = w.index(), .lane = lane}, &conflict)) {
    w.Fail(FaultCode::kLaunchFailed, i, lane, "race: an mbarrier that " + conflict);
    return false;
  }
  if (kind == AccessKind::kAtomic && !group.phase_barriers().contains(*offset)) {
    w.Fail(FaultCode::kLaunchFailed, i, lane, "an mbarrier that was not initialized");
    return false;
  }
  return true;
}

// slots: -, address, count.
void Init(Warp& w, const Instruction& i, uint32_t lanes) {
  Each(lanes, [&](int l) {
    uint64_t offset = 0;
    if (!BarrierOffset(w, i, l, AccessKind::kWrite, &offset)) return;
    const auto count = static_cast<uint32_t>(w.Slot(i.slot[2])[l]);
    if (count == 0 || count >= 1u << 20) {
      w.Fail(FaultCode::kLaunchFailed, i, l, "an mbarrier of 0 or more than 2^20 - 1 arrivals");
      return;
    }
    w.group().phase_barriers()[offset] = {.expected = count, .pending = count};
    std::fill_n(w.group().state(offset), 8, Workgroup::kBarrierByte);
  });
}

void Invalidate(Warp& w, const Instruction& i, uint32_t lanes) {
  Each(lanes, [&](int l) {
    uint64_t offset = 0;
    if (!BarrierOffset(w, i, l, AccessKind::kAtomic, &offset)) return;
    w.group().phase_barriers().erase(offset);
    std::fill_n(w.group().state(offset), 8, Workgroup::kUnwritten);
  });
}

// slots: state, address, count.
void Arrive(Warp& w, const Instruction& i, uint32_t lanes) {
  const auto published = w.clocks().Publish(w.index());
  Each(lanes, [&](int l) {
    uint64_t offset = 0;
    if (!BarrierOffset(w, i, l, AccessKind::kAtomic, &offset)) return;
    PhaseBarrier& barrier = w.group().phase_barriers()[offset];
    const auto count = static_cast<uint32_t>(w.Slot(i.slot[2])[l]);
    if (count == 0 || count > barrier.pending) {
      w.Fail(FaultCode::kLaunchFailed, i, l, "more arrivals than the phase expects");
      return;
    }
    w.Slot(i.slot[0])[l] = barrier.phase;
    w.group().Progress();
    for (size_t k = 0; k < published.size(); ++k) {
      barrier.arriving[k] = std::max(barrier.arriving[k], published[k]);
    }
    barrier.pending -= count;
    if (barrier.pending > 0) return;
    barrier.pending = barrier.expected;
    ++barrier.phase;
    barrier.completed = barrier.arriving;
  });
}

// Whether the warp is already ordered after all that the completed phases publish.
bool Knows(Warp& w, const PhaseBarrier& barrier) {
  for (size_t k = 0; k < barrier.completed.size(); ++k) {
    const bool own = k == static_cast<size_t>(w.index());
    const uint32_t known = own ? w.clocks().synced - 1 : w.clocks().seen[k];
    if (barrier.completed[k] > known) return false;
  }
  return true;
}

// slots: done, address, state or parity; `flags`: parity. A warp's first test of a phase comes too
// early, unless something else has told it that the phase is complete: who only tests once finds
// out.
void Test(Warp& w, const Instruction& i, uint32_t lanes) {
  const auto self = static_cast<size_t>(w.index());
  std::set<uint64_t> early;
  Each(lanes, [&](int l) {
    uint64_t offset = 0;
    if (!BarrierOffset(w, i, l, AccessKind::kAtomic, &offset)) return;
    PhaseBarrier& barrier = w.group().phase_barriers()[offset];
    const uint64_t asked = w.Slot(i.slot[2])[l];
    bool done = i.flags != 0 ? (barrier.phase & 1) != (asked & 1) : barrier.phase != asked;
    if (done && barrier.denied[self] != barrier.phase && !Knows(w, barrier)) {
      barrier.denied[self] = barrier.phase;
      early.insert(offset);
      w.group().Progress();
    }
    done = done && !early.contains(offset);
    w.Slot(i.slot[0])[l] = done ? 1 : 0;
    if (!done) return;
    w.clocks().Learn(barrier.completed);
    w.clocks().synced = std::max(w.clocks().synced, barrier.completed[self] + 1);
  });
}

bool DecodePhaseBarrier(Decoder& d) {
  Instruction& o = d.out();
  const int what = d.TakeOne({"init", "inval", "arrive", "test_wait", "try_wait"});
  d.Expect(what >= 0, "no such mbarrier operation");
  o.flags = d.Take("parity") ? 1 : 0;
  d.TakeOne({"release", "acquire"});
  d.Take("cta");
  o.space = d.TakeSpace();
  d.Expect(d.Take("b64"), "a type is missing");
  d.Expect(o.space == Space::kShared || o.space == Space::kGeneric, "only shared memory");
  switch (what) {
    case 0:
      d.ExpectOperands(2);
      d.Address(0, o.space, 1);
      o.slot[2] = d.Source(1, Type::kU32);
      o.execute = &Init;
      break;
    case 1:
      d.ExpectOperands(1);
      d.Address(0, o.space, 1);
      o.execute = &Invalidate;
      break;
    case 2:
      d.Expect(d.operands() == 2 || d.operands() == 3, "expected two or three operands");
      o.slot[0] = d.Destination(0, Type::kB64);
      d.Address(1, o.space, 1);
      o.slot[2] = d.operands() == 3 ? d.Source(2, Type::kU32) : d.Constant(1);
      o.execute = &Arrive;
      break;
    default:
      d.ExpectOperands(3);
      o.slot[0] = d.Destination(0, Type::kPred);
      d.Address(1, o.space, 1);
      o.slot[2] = o.flags != 0 ? d.Source(2, Type::kU32) : d.Source(2, Type::kB64);
      o.flow = Flow::kTryWait;
      o.execute = &Test;
      break;
  }
  return true;
}

}  // namespace

bool DecodeAsync(Decoder& d) {
  if (d.mnemonic() == "cp") return DecodeCopy(d);
  if (d.mnemonic() == "mbarrier") return DecodePhaseBarrier(d);
  return false;
}

}  // namespace fakecuda
