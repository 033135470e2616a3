// atom and red (PTX ISA, "atom", "red"): lanes one after another, in their order.
#include <algorithm>
#include <cstring>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/float_format.h"
#include "tests/fakes/cuda/ptx/warp.h"

namespace fakecuda {
namespace {

enum AtomicOperation : int {
  kAtomicAdd,
  kAtomicMin,
  kAtomicMax,
  kAtomicAnd,
  kAtomicOr,
  kAtomicXor,
  kAtomicExch,
  kAtomicInc,
  kAtomicDec,
  kAtomicCas
};

uint64_t Mask(Type type) {
  return Bits(type) == 64 ? ~uint64_t{0} : (uint64_t{1} << Bits(type)) - 1;
}

int64_t Signed(Type type, uint64_t x) {
  const int shift = 64 - Bits(type);
  return static_cast<int64_t>(x << shift) >> shift;
}

uint64_t AddFloat(Type type, uint64_t a, uint64_t b) {
  if (type == Type::kF32) return Put<float>(Get<float>(a) + Get<float>(b));
  if (type == Type::kF64) return Put<double>(Get<double>(a) + Get<double>(b));
  const FloatFormat format = type == Type::kF16 ? kF16Format : kBF16Format;
  const double x = DecodeFloat(format, a);
  const double y = DecodeFloat(format, b);
  const double sum = x + y;
  const double part = sum - x;
  const double error = sum - sum == 0 ? (x - (sum - part)) + (y - part) : 0;
  return EncodeDouble(format, sum, error, Round::kNearest);
}

uint64_t Apply(int operation, Type type, uint64_t old, uint64_t a, uint64_t b) {
  const bool is_signed = IsSigned(type);
  const bool less = is_signed ? Signed(type, old) < Signed(type, a) : old < a;
  switch (operation) {
    case kAtomicAdd:
      return IsFloat(type) ? AddFloat(type, old, a) : (old + a) & Mask(type);
    case kAtomicMin:
      return less ? old : a;
    case kAtomicMax:
      return less ? a : old;
    case kAtomicAnd:
      return old & a;
    case kAtomicOr:
      return old | a;
    case kAtomicXor:
      return old ^ a;
    case kAtomicExch:
      return a;
    case kAtomicInc:
      return old >= a ? 0 : old + 1;
    case kAtomicDec:
      return old == 0 || old > a ? a : old - 1;
    default:
      return old == a ? b : old;
  }
}

// slots: d, address, a, b; `count` the operation, `width` the type.
void Atomic(Warp& w, const Instruction& i, uint32_t lanes) {
  const Type type = static_cast<Type>(i.width);
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int l = std::countr_zero(rest);
    uint8_t* at = w.Access(i, l, i.space, w.Slot(i.slot[1])[l] + static_cast<uint64_t>(i.offset),
                           i.bytes, AccessKind::kAtomic);
    if (at == nullptr) return;
    uint64_t old = 0;
    std::memcpy(&old, at, i.bytes);
    const uint64_t value = Apply(i.count, type, old, w.Slot(i.slot[2])[l], w.Slot(i.slot[3])[l]);
    std::memcpy(at, &value, i.bytes);
    w.Slot(i.slot[0])[l] = old;
  }
}

}  // namespace

bool DecodeAtomic(Decoder& d) {
  const bool atom = d.mnemonic() == "atom";
  if (!atom && d.mnemonic() != "red") return false;
  Instruction& o = d.out();
  d.TakeOne({"relaxed", "acquire", "release", "acq_rel"});
  d.TakeOne({"cta", "cluster", "gpu", "sys"});
  o.space = d.TakeSpace();
  const int operation =
      d.TakeOne({"add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas"});
  d.Take("noftz");
  const Type type = d.TakeType();
  d.Expect(operation >= 0, "an operation is missing");
  d.Expect(!IsFloat(type) || operation == kAtomicAdd, "floats are only added");
  d.Expect(Bits(type) >= 16 && type != Type::kF16x2 && type != Type::kBF16x2, "no such atomic");
  d.Expect(Bits(type) >= 32 || IsFloat(type) || operation == kAtomicCas, "no such atomic");
  d.Expect(atom || (operation != kAtomicCas && operation != kAtomicExch),
           "a reduction without result");
  o.bytes = static_cast<uint8_t>(Bytes(type));
  o.count = static_cast<uint8_t>(operation);
  o.width = static_cast<uint8_t>(type);
  const size_t first = atom ? 1 : 0;
  d.ExpectOperands(first + (operation == kAtomicCas ? 3 : 2));
  const Type reg = type == Type::kF16 || type == Type::kBF16 ? Type::kB16 : type;
  o.slot[0] = atom ? d.Destination(0, reg) : d.Trash();
  d.Address(first, o.space, 1);
  o.slot[2] = d.Source(first + 1, reg);
  o.slot[3] = operation == kAtomicCas ? d.Source(first + 2, reg) : d.Constant(0);
  o.execute = &Atomic;
  return true;
}

}  // namespace fakecuda
