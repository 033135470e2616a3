// Which counter an access of each address space uses, and the address of a lane: registers and
// offset are added, and a generic address is taken for local or scratch memory by its upper
// bits.
#include "tests/fakes/amd/memory_row.h"

#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

Counter CounterOf(const Target& target, Space space, bool store) {
  if (space == Space::kLocal) return Counter::kLocal;
  return store && target.major >= 10 ? Counter::kStore : Counter::kLoad;
}

EventKind KindOf(Space space) {
  return space == Space::kLocal  ? EventKind::kLocal
         : space == Space::kFlat ? EventKind::kFlat
                                 : EventKind::kVector;
}

}  // namespace

void SetCounter(Decoder& d, Space space, bool loads) {
  d.out().loads = loads;
  d.out().counter = static_cast<uint8_t>(CounterOf(d.target(), space, !loads));
  d.out().event = static_cast<uint8_t>(KindOf(space));
}

void CountAccess(Wave& w, const Instruction& i, Space space, bool store, uint16_t first,
                 uint8_t words) {
  static_cast<void>(i);
  const uint32_t index = w.next() - 1;
  const Counter counter = CounterOf(w.target(), space, store && words == 0);
  if (space == Space::kLocal && store && words == 0) {
    w.counters().AddLocalStore(counter, index);
    return;
  }
  w.counters().Add(counter, KindOf(space), first, words, false, index);
  if (space == Space::kFlat) {
    w.counters().Add(Counter::kLocal, EventKind::kFlat, first, words, false, index);
  }
}

uint8_t* LaneAddress(Wave& w, const Instruction& i, Space space, const AddressForm& form,
                     uint32_t lane, uint32_t bytes, Access access, uint8_t** state) {
  const Operand& vector = i.source[form.vector];
  uint64_t address = 0;
  if (vector.kind == Operand::Kind::kVector) {
    if (((w.undefined(vector.reg) | (vector.words > 1 ? w.undefined(vector.reg + 1u) : 0)) >> lane &
         1) != 0) {
      w.Fail(FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
             "its address has no defined value");
      return nullptr;
    }
    address = w.Vector(vector.reg)[lane];
    if (vector.words > 1) address |= uint64_t{w.Vector(vector.reg + 1u)[lane]} << 32;
  }
  if (space != Space::kLocal && space != Space::kFlat) {
    const Operand& scalar = i.source[form.scalar];
    if (scalar.kind != Operand::Kind::kOff && scalar.kind != Operand::Kind::kNone) {
      address += w.Scalar(i, scalar);
      if (w.failed()) return nullptr;
    }
  }
  address += static_cast<uint64_t>(int64_t{i.offset});
  *state = nullptr;
  if (space == Space::kFlat) {
    if (address >> 48 == kSharedWindow >> 48) {
      space = Space::kLocal;
    } else if (address >> 48 == kPrivateWindow >> 48) {
      space = Space::kScratch;
    }
  }
  if (space == Space::kLocal) {
    address &= 0xffffffff;
    uint8_t* to = w.Local(i, lane, address, bytes, access);
    if (to != nullptr) *state = w.group().local_state(address);
    return to;
  }
  if (space == Space::kBuffer) {
    Operand base = i.source[i.sources - 1u];
    base.words = 2;
    if (w.Scalar(i, base) != kPrivateWindow) {
      w.Fail(FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
             "uses a buffer that is not scratch");
      return nullptr;
    }
  }
  if (space == Space::kScratch || space == Space::kBuffer) {
    address &= 0xffffffff;
    uint8_t* to = w.Scratch(i, lane, address, bytes);
    if (to != nullptr) *state = w.ScratchState(lane, address);
    return to;
  }
  return w.Global(i, lane, address, bytes, access);
}

}  // namespace fakeamd
