// mov with packing and unpacking, and cvta between the generic and the other address spaces (PTX
// ISA, "Data Movement and Conversion Instructions").
#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/warp.h"

namespace fakecuda {
namespace {

void Mov(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  Each(lanes, [&](int l) { d[l] = a[l]; });
}

// d = {slots 1...}: `count` elements of `width` bits, the first in the lowest. LLVM leaves elements
// unwritten whose bits it drops again.
void Pack(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint64_t mask = (uint64_t{1} << i.width) - 1;
  uint64_t* d = w.Slot(i.slot[0]);
  Each(lanes, [&](int l) {
    uint64_t packed = 0;
    for (size_t k = 0; k < i.count; ++k) {
      packed |= (w.Slot(i.slot[k + 1])[l] & mask) << (k * i.width);
    }
    d[l] = packed;
  });
}

void Unpack(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint64_t mask = (uint64_t{1} << i.width) - 1;
  Each(lanes, [&](int l) {
    const uint64_t packed = w.Slot(i.slot[0])[l];
    for (size_t k = 0; k < i.count; ++k) {
      w.Slot(i.slot[k + 1])[l] = packed >> (k * i.width) & mask;
    }
  });
}

uint64_t Window(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParam:
      return kParamWindow;
    default:
      return 0;
  }
}

// Adds `offset`, modulo the register's width.
void AddOffset(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const uint64_t mask = i.width == 32 ? 0xffffffff : ~uint64_t{0};
  Each(lanes, [&](int l) { d[l] = (a[l] + static_cast<uint64_t>(i.offset)) & mask; });
}

bool DecodeCvta(Decoder& d) {
  const bool to = d.Take("to");
  const Space space = d.TakeSpace();
  const Type type = d.TakeType();
  d.Expect(space != Space::kGeneric, "a space is missing");
  d.Expect(type == Type::kU64, "addresses have 64 bits");
  d.ExpectOperands(2);
  Instruction& o = d.out();
  o.slot = {d.Destination(0, type), d.Source(1, type)};
  const auto window = static_cast<int64_t>(Window(space));
  o.offset = to ? -window : window;
  o.width = 64;
  o.execute = &AddOffset;
  return true;
}

Type Part(int bits) {
  switch (bits) {
    case 8:
      return Type::kB8;
    case 16:
      return Type::kB16;
    case 32:
      return Type::kB32;
    default:
      return Type::kNone;
  }
}

void DecodePack(Decoder& d, Type type, bool pack) {
  Instruction& o = d.out();
  const Operand& vector = d.statement().operands[pack ? 1 : 0];
  const size_t n = vector.elements.size();
  d.Expect(n == 2 || n == 4, "a vector of two or four");
  const Type part = n > 0 ? Part(Bits(type) / static_cast<int>(n)) : Type::kNone;
  d.Expect(part != Type::kNone, "no such parts");
  if (n == 0 || n > 4 || part == Type::kNone) return;
  o.count = static_cast<uint8_t>(n);
  o.width = static_cast<uint8_t>(Bits(part));
  o.slot[0] = pack ? d.Destination(0, type) : d.Source(1, type);
  for (size_t k = 0; k < n; ++k) {
    o.slot[k + 1] =
        pack ? d.SourceOf(vector.elements[k], part) : d.DestinationOf(vector.elements[k], part);
  }
  o.execute = pack ? &Pack : &Unpack;
}

}  // namespace

bool DecodeMove(Decoder& d) {
  if (d.mnemonic() == "cvta") return DecodeCvta(d);
  if (d.mnemonic() != "mov") return false;
  Instruction& o = d.out();
  const Type type = d.TakeType();
  d.ExpectOperands(2);
  if (d.operands() != 2) return true;
  if (d.statement().operands[0].kind == Operand::Kind::kVector) {
    DecodePack(d, type, false);
  } else if (d.statement().operands[1].kind == Operand::Kind::kVector) {
    DecodePack(d, type, true);
  } else {
    o.slot = {d.Destination(0, type), d.Source(1, type)};
    o.execute = &Mov;
  }
  return true;
}

}  // namespace fakecuda
