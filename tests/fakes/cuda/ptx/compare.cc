// Comparison and selection (PTX ISA, "Comparison and Selection Instructions").
#include <cmath>
#include <type_traits>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/float_format.h"
#include "tests/fakes/cuda/ptx/lanes.h"

namespace fakecuda {
namespace {

enum Comparison : int {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLo,
  kLs,
  kHi,
  kHs,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan
};

template <class T>
bool Compare(int comparison, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool unordered = std::isnan(a) || std::isnan(b);
    if (comparison == kNum) return !unordered;
    if (comparison == kNan) return unordered;
    if (unordered) return comparison >= kEqu;
  }
  switch (comparison) {
    case kEq:
    case kEqu:
      return a == b;
    case kNe:
    case kNeu:
      return a != b;
    case kLt:
    case kLo:
    case kLtu:
      return a < b;
    case kLe:
    case kLs:
    case kLeu:
      return a <= b;
    case kGt:
    case kHi:
    case kGtu:
      return a > b;
    default:
      return a >= b;
  }
}

struct HalfBits {
  static double Value(uint64_t bits) { return DecodeFloat(kF16Format, bits); }
};
struct Brain {
  static double Value(uint64_t bits) { return DecodeFloat(kBF16Format, bits); }
};

template <class T>
auto Value(uint64_t bits) {
  if constexpr (std::is_same_v<T, HalfBits> || std::is_same_v<T, Brain>) {
    return T::Value(bits);
  } else {
    return Get<T>(bits);
  }
}

constexpr uint32_t kAnd = 1;
constexpr uint32_t kOr = 2;
constexpr uint32_t kXor = 3;
constexpr uint32_t kCombine = 3;
constexpr uint32_t kNegated = 4;
constexpr uint32_t kFlushInputs = 8;

bool Combined(uint32_t flags, bool t, bool c) {
  switch (flags & kCombine) {
    case kAnd:
      return t && c;
    case kOr:
      return t || c;
    case kXor:
      return t != c;
    default:
      return t;
  }
}

// slots: p, a, b, c, q; `count` is the comparison.
template <class T>
void Setp(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* p = w.Slot(i.slot[0]);
  uint64_t* q = w.Slot(i.slot[4]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const uint64_t* b = w.Slot(i.slot[2]);
  const uint64_t* c = w.Slot(i.slot[3]);
  Each(lanes, [&](int l) {
    auto x = Value<T>(a[l]);
    auto y = Value<T>(b[l]);
    if constexpr (std::is_same_v<T, float>) {
      if ((i.flags & kFlushInputs) != 0) {
        if (std::fpclassify(x) == FP_SUBNORMAL) x = 0;
        if (std::fpclassify(y) == FP_SUBNORMAL) y = 0;
      }
    }
    const bool t = Compare(i.count, x, y);
    const bool with = ((c[l] & 1) != 0) != ((i.flags & kNegated) != 0);
    p[l] = Combined(i.flags, t, with) ? 1 : 0;
    q[l] = Combined(i.flags, !t, with) ? 1 : 0;
  });
}

Execute SetpOf(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return &Setp<uint16_t>;
    case Type::kB32:
    case Type::kU32:
      return &Setp<uint32_t>;
    case Type::kB64:
    case Type::kU64:
      return &Setp<uint64_t>;
    case Type::kS16:
      return &Setp<int16_t>;
    case Type::kS32:
      return &Setp<int32_t>;
    case Type::kS64:
      return &Setp<int64_t>;
    case Type::kF16:
      return &Setp<HalfBits>;
    case Type::kBF16:
      return &Setp<Brain>;
    case Type::kF32:
      return &Setp<float>;
    case Type::kF64:
      return &Setp<double>;
    default:
      return nullptr;
  }
}

void Selp(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const uint64_t* b = w.Slot(i.slot[2]);
  const uint64_t* p = w.Slot(i.slot[3]);
  Each(lanes, [&](int l) { d[l] = (p[l] & 1) != 0 ? a[l] : b[l]; });
}

}  // namespace

bool DecodeCompare(Decoder& d) {
  Instruction& o = d.out();
  if (d.mnemonic() == "selp") {
    const Type type = d.TakeType();
    d.ExpectOperands(4);
    o.slot = {d.Destination(0, type), d.Source(1, type), d.Source(2, type),
              d.Source(3, Type::kPred)};
    o.execute = &Selp;
    return true;
  }
  if (d.mnemonic() != "setp") return false;
  const Type type = d.TakeType();
  const int combine = d.TakeOne({"and", "or", "xor"});
  const int comparison = d.TakeOne({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs",
                                    "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  d.Expect(comparison >= 0, "a comparison is missing");
  d.Expect(IsFloat(type) || comparison <= kHs, "a comparison of floats");
  d.Expect(Info(type).kind == 'u' || comparison < kLo || comparison > kHs,
           "a comparison of unsigned integers");
  d.Expect(Info(type).kind != 'b' || comparison <= kNe, "bits have no order");
  o.count = static_cast<uint8_t>(comparison);
  o.flags = static_cast<uint32_t>(combine + 1);
  if (d.Take("ftz")) o.flags |= kFlushInputs;
  o.execute = SetpOf(type);
  d.Expect(o.execute != nullptr, "no comparison of this type");
  d.ExpectOperands(combine >= 0 ? 4 : 3);
  if (d.operands() == 0) return true;
  Operand first = d.statement().operands[0];
  o.slot[4] = d.Trash();
  if (first.second >= 0) {
    Operand q;
    q.kind = Operand::Kind::kRegister;
    q.reg = first.second;
    o.slot[4] = d.DestinationOf(q, Type::kPred);
  }
  first.second = -1;
  o.slot[0] = d.DestinationOf(first, Type::kPred);
  o.slot[1] = d.Source(1, type);
  o.slot[2] = d.Source(2, type);
  o.slot[3] = d.Constant(0);
  if (combine >= 0 && d.operands() == 4) {
    Operand c = d.statement().operands[3];
    if (c.negated) o.flags |= kNegated;
    c.negated = false;
    o.slot[3] = d.SourceOf(c, Type::kPred);
  }
  return true;
}

}  // namespace fakecuda
