// mbarrier (PTX ISA, "mbarrier"), and the bulk copies that complete there. A phase publishes what
// the arriving warps and the copies did; the shadow memory takes an arrival of a lane as one of its
// whole warp.
#include "tests/fakes/cuda/ptx/phase_barrier.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "tests/fakes/cuda/ptx/decode.h"

namespace fakecuda {
namespace {

constexpr int kArrive = 2, kExpect = 3;        // among the operations
constexpr int64_t kMostBytes = (1 << 20) - 1;  // that a phase expects

uint64_t AddressOf(Warp& w, const Instruction& i, int lane) {
  const uint64_t address = w.Slot(i.slot[1])[lane] + static_cast<uint64_t>(i.offset);
  return i.space == Space::kGeneric ? address - kSharedWindow : address;
}

bool BarrierOffset(Warp& w, const Instruction& i, int lane, AccessKind kind, uint64_t* offset) {
  return FindBarrier(w, i, lane, AddressOf(w, i, lane), kind, offset);
}

bool NoCopies(Warp& w, const Instruction& i, int lane, const PhaseBarrier& barrier) {
  if (barrier.copies.empty()) return true;
  w.Fail(FaultCode::kLaunchFailed, i, lane, "an mbarrier at which bulk copies are in flight");
  return false;
}

// In slot 3.
bool ExpectBytes(Warp& w, const Instruction& i, int lane, PhaseBarrier* barrier) {
  barrier->bytes += static_cast<uint32_t>(w.Slot(i.slot[3])[lane]);
  if (barrier->bytes <= kMostBytes) return true;
  w.Fail(FaultCode::kLaunchFailed, i, lane, "an mbarrier that expects more than 2^20 - 1 bytes");
  return false;
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
    PhaseBarrier& barrier = w.group().phase_barriers()[offset];
    if (!NoCopies(w, i, l, barrier)) return;
    barrier = {.expected = count, .pending = count, .made_by = w.index()};
    std::fill_n(w.group().state(offset), 8, Workgroup::kBarrierByte);
  });
}

void Invalidate(Warp& w, const Instruction& i, uint32_t lanes) {
  Each(lanes, [&](int l) {
    uint64_t offset = 0;
    if (!BarrierOffset(w, i, l, AccessKind::kAtomic, &offset)) return;
    if (!NoCopies(w, i, l, w.group().phase_barriers()[offset])) return;
    w.group().phase_barriers().erase(offset);
    std::fill_n(w.group().state(offset), 8, Workgroup::kUnwritten);
  });
}

// slots: state, address, count, bytes.
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
    if (ExpectBytes(w, i, l, &barrier)) barrier.Advance();
  });
}

// slots: -, address, -, bytes.
void Expect(Warp& w, const Instruction& i, uint32_t lanes) {
  Each(lanes, [&](int l) {
    uint64_t offset = 0;
    if (!BarrierOffset(w, i, l, AccessKind::kAtomic, &offset)) return;
    if (ExpectBytes(w, i, l, &w.group().phase_barriers()[offset])) w.group().Progress();
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

// slots: done, address, state or parity; `flags`: parity. Bulk copies complete no earlier than
// somebody tests for it. A warp's first test of a phase comes too early, unless something else has
// told it that the phase is complete: who only tests once finds out.
void Test(Warp& w, const Instruction& i, uint32_t lanes) {
  const auto self = static_cast<size_t>(w.index());
  std::set<uint64_t> early;
  Each(lanes, [&](int l) {
    uint64_t offset = 0;
    if (!BarrierOffset(w, i, l, AccessKind::kAtomic, &offset)) return;
    PhaseBarrier& barrier = w.group().phase_barriers()[offset];
    CompleteCopies(w.group(), &barrier);
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

}  // namespace

bool FindBarrier(Warp& w, const Instruction& i, int lane, uint64_t address, AccessKind kind,
                 uint64_t* offset) {
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

uint64_t Swizzled(uint64_t address, uint32_t span) {
  if (span == 0) return address;
  const uint64_t chunks = span / kSwizzled - 1;
  return address ^ ((address >> 7 & chunks) << 4);
}

void CompleteCopies(Workgroup& group, PhaseBarrier* barrier) {
  if (barrier->copies.empty()) return;
  for (const BulkCopy& copy : std::exchange(barrier->copies, {})) {
    std::vector<uint8_t> box = copy.fill;
    for (const BulkCopy::Row& row : copy.rows) {
      std::memcpy(box.data() + row.at, row.from, row.bytes);
    }
    for (uint64_t at = 0; at < box.size(); at += kSwizzled) {
      const uint64_t to = Swizzled(kSharedBegin + copy.to + at, copy.span) - kSharedBegin;
      std::memcpy(group.shared(to), box.data() + at, kSwizzled);
      std::memset(group.state(to), Workgroup::kVisible, kSwizzled);
    }
    barrier->bytes -= static_cast<int64_t>(box.size());
    uint32_t& published = barrier->arriving[kCopier];
    published = std::max(published, copy.clock);
  }
  barrier->Advance();
  group.Progress();
}

bool DecodePhaseBarrier(Decoder& d) {
  if (d.mnemonic() != "mbarrier") return false;
  Instruction& o = d.out();
  const int what = d.TakeOne({"init", "inval", "arrive", "expect_tx", "test_wait", "try_wait"});
  d.Expect(what >= 0, "no such mbarrier operation");
  const bool expects = what == kExpect || (what == kArrive && d.Take("expect_tx"));
  o.flags = d.Take("parity") ? 1 : 0;
  d.TakeOne({"release", "acquire", "relaxed"});
  d.TakeOne({"cta", "cluster"});
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
    case kArrive:
      d.Expect(d.operands() == 3 || (d.operands() == 2 && !expects),
               "expected two or three operands");
      o.slot[0] = d.Destination(0, Type::kB64);
      d.Address(1, o.space, 1);
      o.slot[2] = d.operands() == 3 && !expects ? d.Source(2, Type::kU32) : d.Constant(1);
      o.slot[3] = expects ? d.Source(2, Type::kU32) : d.Constant(0);
      o.execute = &Arrive;
      break;
    case kExpect:
      d.ExpectOperands(2);
      d.Address(0, o.space, 1);
      o.slot[3] = d.Source(1, Type::kU32);
      o.execute = &Expect;
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

}  // namespace fakecuda
