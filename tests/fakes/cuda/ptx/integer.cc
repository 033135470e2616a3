// Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions"). Everything wraps; division by
// zero gives all ones and a remainder by zero the dividend, as on the device.
#include <limits>
#include <type_traits>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/lanes.h"

namespace fakecuda {
namespace {

// Twice the bits of T.
template <class T>
struct Twice;
template <>
struct Twice<uint16_t> {
  using Type = uint32_t;
};
template <>
struct Twice<int16_t> {
  using Type = int32_t;
};
template <>
struct Twice<uint32_t> {
  using Type = uint64_t;
};
template <>
struct Twice<int32_t> {
  using Type = int64_t;
};
template <>
struct Twice<uint64_t> {
  using Type = unsigned __int128;
};
template <>
struct Twice<int64_t> {
  using Type = __int128;
};
template <class T>
using Wide = typename Twice<T>::Type;

template <class T>
T Wrap(Wide<T> x) {
  return static_cast<T>(x);
}

template <class T>
T Add(T a, T b) {
  return Wrap<T>(Wide<T>{a} + b);
}
template <class T>
T Sub(T a, T b) {
  return Wrap<T>(Wide<T>{a} - b);
}
template <class T>
T MulLo(T a, T b) {
  return Wrap<T>(Wide<T>{a} * b);
}
template <class T>
T MulHi(T a, T b) {
  return static_cast<T>((Wide<T>{a} * b) >> (8 * sizeof(T)));
}
template <class T>
Wide<T> MulWide(T a, T b) {
  return Wide<T>{a} * b;
}
template <class T>
T MadLo(T a, T b, T c) {
  return Add<T>(MulLo<T>(a, b), c);
}
template <class T>
T MadHi(T a, T b, T c) {
  return Add<T>(MulHi<T>(a, b), c);
}
template <class T>
Wide<T> MadWide(T a, T b, Wide<T> c) {
  using U = std::make_unsigned_t<Wide<T>>;
  return static_cast<Wide<T>>(static_cast<U>(Wide<T>{a} * b) + static_cast<U>(c));
}
template <class T>
T Div(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub<T>(0, a);
  return static_cast<T>(a / b);
}
template <class T>
T Rem(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
template <class T>
T Min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T Max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
T Neg(T a) {
  return Sub<T>(0, a);
}
template <class T>
T Abs(T a) {
  return a < 0 ? Neg<T>(a) : a;
}
template <class T>
T AddSaturated(T a, T b) {
  const Wide<T> sum = Wide<T>{a} + b;
  if (sum > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
  if (sum < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
  return static_cast<T>(sum);
}
template <class T>
T SubSaturated(T a, T b) {
  const Wide<T> difference = Wide<T>{a} - b;
  if (difference > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
  if (difference < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
  return static_cast<T>(difference);
}

// What exists for every integer type.
template <class T>
Execute Common(const std::string& name) {
  if (name == "add") return &Lanes2<T, T, T, Add<T>>;
  if (name == "sub") return &Lanes2<T, T, T, Sub<T>>;
  if (name == "mul.lo") return &Lanes2<T, T, T, MulLo<T>>;
  if (name == "mul.hi") return &Lanes2<T, T, T, MulHi<T>>;
  if (name == "mad.lo") return &Lanes3<T, T, T, T, MadLo<T>>;
  if (name == "mad.hi") return &Lanes3<T, T, T, T, MadHi<T>>;
  if (name == "div") return &Lanes2<T, T, T, Div<T>>;
  if (name == "rem") return &Lanes2<T, T, T, Rem<T>>;
  if (name == "min") return &Lanes2<T, T, T, Min<T>>;
  if (name == "max") return &Lanes2<T, T, T, Max<T>>;
  if constexpr (std::is_signed_v<T>) {
    if (name == "neg") return &Lanes1<T, T, Neg<T>>;
    if (name == "abs") return &Lanes1<T, T, Abs<T>>;
  }
  if constexpr (sizeof(T) < 8) {
    if (name == "mul.wide") return &Lanes2<Wide<T>, T, T, MulWide<T>>;
    if (name == "mad.wide") return &Lanes3<Wide<T>, T, T, Wide<T>, MadWide<T>>;
  }
  return nullptr;
}

Execute ForType(Type type, const std::string& name) {
  switch (type) {
    case Type::kU16:
      return Common<uint16_t>(name);
    case Type::kS16:
      return Common<int16_t>(name);
    case Type::kU32:
      return Common<uint32_t>(name);
    case Type::kS32:
      if (name == "add.sat") return &Lanes2<int32_t, int32_t, int32_t, AddSaturated<int32_t>>;
      if (name == "sub.sat") return &Lanes2<int32_t, int32_t, int32_t, SubSaturated<int32_t>>;
      return Common<int32_t>(name);
    case Type::kU64:
      return Common<uint64_t>(name);
    case Type::kS64:
      return Common<int64_t>(name);
    default:
      return nullptr;
  }
}

Type Doubled(Type type) {
  switch (type) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    default:
      return Type::kS64;
  }
}

// Addition and subtraction with the carry flag, which has a slot of its own (slot[3]).
template <class T, bool kSubtract>
void Carry(Warp& w, const Instruction& i, uint32_t lanes) {
  constexpr uint32_t kIn = 1;
  constexpr uint32_t kOut = 2;
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const uint64_t* b = w.Slot(i.slot[2]);
  uint64_t* flag = w.Slot(i.slot[3]);
  Each(lanes, [&](int l) {
    const unsigned in = i.flags & kIn ? static_cast<unsigned>(flag[l] & 1) : 0;
    const Wide<T> x = Get<T>(a[l]);
    const Wide<T> result = kSubtract ? x - Get<T>(b[l]) - in : x + Get<T>(b[l]) + in;
    if (i.flags & kOut) flag[l] = static_cast<uint64_t>(result >> (8 * sizeof(T))) & 1;
    d[l] = Put<T>(static_cast<T>(result));
  });
}

bool DecodeCarry(Decoder& d) {
  const std::string& m = d.mnemonic();
  const bool in = m == "addc" || m == "subc";
  const bool out = d.Take("cc");
  if (!in && !out) return false;
  const Type type = d.TakeType();
  d.Expect(IsInteger(type) && Bits(type) >= 32, "a type without a carry");
  d.ExpectOperands(3);
  Instruction& o = d.out();
  o.slot = {d.Destination(0, type), d.Source(1, type), d.Source(2, type), d.Flag()};
  o.flags = (in ? 1u : 0u) | (out ? 2u : 0u);
  const bool subtract = m[0] == 's';
  o.execute = Bits(type) == 64 ? (subtract ? &Carry<uint64_t, true> : &Carry<uint64_t, false>)
                               : (subtract ? &Carry<uint32_t, true> : &Carry<uint32_t, false>);
  return true;
}

}  // namespace

bool DecodeInteger(Decoder& d) {
  static constexpr std::string_view kNames[] = {"add", "sub", "mul", "mad", "div",  "rem",
                                                "min", "max", "neg", "abs", "addc", "subc"};
  const Type last = d.LastType();
  bool mine = false;
  for (const auto name : kNames) mine |= d.mnemonic() == name;
  if (!mine || IsFloat(last)) return false;
  const std::string& m = d.mnemonic();
  if ((m.starts_with("add") || m.starts_with("sub")) && DecodeCarry(d)) return true;
  std::string name = m;
  for (const auto variant : {"lo", "hi", "wide", "sat"}) {
    if (d.Take(variant)) name += std::string(".") + variant;
  }
  const Type type = d.TakeType();
  Instruction& o = d.out();
  o.execute = ForType(type, name);
  d.Expect(o.execute != nullptr, "no such operation for this type");
  const Type result = name.ends_with(".wide") ? Doubled(type) : type;
  const bool unary = name == "neg" || name == "abs";
  const bool ternary = m == "mad";
  d.ExpectOperands(unary ? 2 : ternary ? 4 : 3);
  o.slot[0] = d.Destination(0, result);
  o.slot[1] = d.Source(1, type);
  if (!unary) o.slot[2] = d.Source(2, type);
  if (ternary) o.slot[3] = d.Source(3, result);
  return true;
}

}  // namespace fakecuda
