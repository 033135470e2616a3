// Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions" and the bit instructions of
// "Integer Arithmetic Instructions"). Shifts by more than the width give what shifting bit by bit
// would.
#include <algorithm>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/lanes.h"

namespace fakecuda {
namespace {

uint64_t And(uint64_t a, uint64_t b) { return a & b; }
uint64_t Or(uint64_t a, uint64_t b) { return a | b; }
uint64_t Xor(uint64_t a, uint64_t b) { return a ^ b; }
template <class T>
T Not(T a) {
  return static_cast<T>(~a);
}
bool NotPredicate(bool a) { return !a; }
template <class T>
T Cnot(T a) {
  return a == 0 ? 1 : 0;
}

template <class T>
T Shl(T a, uint32_t n) {
  return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n);
}
template <class T>
T Shr(T a, uint32_t n) {
  return static_cast<T>(a >> std::min<uint32_t>(n, 8 * sizeof(T) - 1) >>
                        (n >= 8 * sizeof(T) ? 1 : 0));
}

// Funnel shifts of {high, low}.
template <bool kLeft, bool kWrap>
uint32_t Shf(uint32_t low, uint32_t high, uint32_t n) {
  n = kWrap ? n & 31 : std::min<uint32_t>(n, 32);
  const uint64_t both = uint64_t{high} << 32 | low;
  return static_cast<uint32_t>(kLeft ? (both << n) >> 32 : both >> n);
}

template <class T>
uint32_t Popc(T a) {
  return static_cast<uint32_t>(std::popcount(a));
}
template <class T>
uint32_t Clz(T a) {
  return static_cast<uint32_t>(std::countl_zero(a));
}
template <class T>
T Brev(T a) {
  T r = 0;
  for (size_t i = 0; i < 8 * sizeof(T); ++i) {
    r = static_cast<T>(r << 1 | (a >> i & 1));
  }
  return r;
}
// The highest bit that differs from the sign; all ones if there is none.
template <class T>
uint32_t Bfind(T a) {
  using U = std::make_unsigned_t<T>;
  const U x = static_cast<U>(a < 0 ? ~a : a);
  return x == 0 ? ~uint32_t{0}
                : static_cast<uint32_t>(8 * sizeof(T) - 1) -
                      static_cast<uint32_t>(std::countl_zero(x));
}

// PTX ISA, "bfe": position and length count modulo 256; bits beyond the field are copies of its
// sign, 0 for unsigned types or an empty field; the sign bit of a field that reaches beyond the
// value is the value's.
template <class T>
T Bfe(T a, uint32_t position, uint32_t length) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  using U = std::make_unsigned_t<T>;
  position &= 255;
  length &= 255;
  const U u = static_cast<U>(a);
  bool sign = false;
  if (std::is_signed_v<T> && length > 0) {
    sign = (u >> std::min(position + length - 1, kBits - 1) & 1) != 0;
  }
  U r = 0;
  for (uint32_t i = 0; i < kBits; ++i) {
    const bool in = i < length && position + i < kBits;
    const bool bit = in ? (u >> (position + i) & 1) != 0 : sign;
    r |= static_cast<U>(static_cast<U>(bit) << i);
  }
  return static_cast<T>(r);
}

template <class T>
void Bfi(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  Each(lanes, [&](int l) {
    const T from = Get<T>(w.Slot(i.slot[1])[l]);
    T into = Get<T>(w.Slot(i.slot[2])[l]);
    const uint64_t position = w.Slot(i.slot[3])[l] & 255;
    const uint64_t length = w.Slot(i.slot[4])[l] & 255;
    for (uint64_t b = 0; b < length && position + b < 8 * sizeof(T); ++b) {
      const T mask = static_cast<T>(T{1} << (position + b));
      into = static_cast<T>((from >> b & 1) != 0 ? into | mask : into & ~mask);
    }
    d[l] = Put<T>(into);
  });
}

// PTX ISA, "prmt", default mode: each selector nibble picks a byte of {b, a}, or with its high bit
// that byte's sign eight times.
uint32_t Prmt(uint32_t a, uint32_t b, uint32_t c) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t select = c >> (4 * i) & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (select & 7))) & 255;
    if ((select & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    r |= byte << (8 * i);
  }
  return r;
}

void Lop3(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  Each(lanes, [&](int l) {
    const uint64_t a = w.Slot(i.slot[1])[l];
    const uint64_t b = w.Slot(i.slot[2])[l];
    const uint64_t c = w.Slot(i.slot[3])[l];
    const uint64_t table = w.Slot(i.slot[4])[l];
    uint32_t r = 0;
    for (int bit = 0; bit < 32; ++bit) {
      const uint64_t at = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
      r |= static_cast<uint32_t>(table >> at & 1) << bit;
    }
    d[l] = r;
  });
}

template <class U, class S>
Execute Unary(const std::string& m, bool is_signed) {
  if (m == "not") return &Lanes1<U, U, Not<U>>;
  if (m == "cnot") return &Lanes1<U, U, Cnot<U>>;
  if constexpr (sizeof(U) >= 4) {
    if (m == "popc") return &Lanes1<uint32_t, U, Popc<U>>;
    if (m == "clz") return &Lanes1<uint32_t, U, Clz<U>>;
    if (m == "brev") return &Lanes1<U, U, Brev<U>>;
    if (m == "bfind") {
      return is_signed ? &Lanes1<uint32_t, S, Bfind<S>> : &Lanes1<uint32_t, U, Bfind<U>>;
    }
  }
  return nullptr;
}

template <class U, class S>
Execute Shift(const std::string& m, bool is_signed) {
  if (m == "shl") return &Lanes2<U, U, uint32_t, Shl<U>>;
  return is_signed ? &Lanes2<S, S, uint32_t, Shr<S>> : &Lanes2<U, U, uint32_t, Shr<U>>;
}

bool DecodeLogic(Decoder& d) {
  const std::string& m = d.mnemonic();
  Instruction& o = d.out();
  const Type type = d.TakeType();
  d.Expect(type == Type::kPred || Info(type).kind == 'b', "a type that is neither bits nor pred");
  o.slot[0] = d.Destination(0, type);
  o.slot[1] = d.Source(1, type);
  if (m == "not" || m == "cnot") {
    d.ExpectOperands(2);
    o.execute = type == Type::kPred ? &Lanes1<bool, bool, NotPredicate>
                : Bits(type) == 16  ? Unary<uint16_t, int16_t>(m, false)
                : Bits(type) == 32  ? Unary<uint32_t, int32_t>(m, false)
                                    : Unary<uint64_t, int64_t>(m, false);
    return true;
  }
  d.ExpectOperands(3);
  o.slot[2] = d.Source(2, type);
  o.execute = m == "and"  ? &Lanes2<uint64_t, uint64_t, uint64_t, And>
              : m == "or" ? &Lanes2<uint64_t, uint64_t, uint64_t, Or>
                          : &Lanes2<uint64_t, uint64_t, uint64_t, Xor>;
  return true;
}

}  // namespace

bool DecodeBits(Decoder& d) {
  const std::string& m = d.mnemonic();
  Instruction& o = d.out();
  if (m == "and" || m == "or" || m == "xor" || m == "not" || m == "cnot") return DecodeLogic(d);
  if (m == "shl" || m == "shr") {
    const Type type = d.TakeType();
    d.ExpectOperands(3);
    d.Expect(!IsFloat(type) && Bits(type) >= 16, "no such shift");
    o.slot = {d.Destination(0, type), d.Source(1, type), d.Source(2, Type::kU32)};
    o.execute = Bits(type) == 16   ? Shift<uint16_t, int16_t>(m, IsSigned(type))
                : Bits(type) == 32 ? Shift<uint32_t, int32_t>(m, IsSigned(type))
                                   : Shift<uint64_t, int64_t>(m, IsSigned(type));
    return true;
  }
  if (m == "shf") {
    const int left = d.TakeOne({"r", "l"});
    const int wrap = d.TakeOne({"clamp", "wrap"});
    const Type type = d.TakeType();
    d.ExpectOperands(4);
    d.Expect(type == Type::kB32 && left >= 0 && wrap >= 0, "no such funnel shift");
    o.slot = {d.Destination(0, type), d.Source(1, type), d.Source(2, type),
              d.Source(3, Type::kU32)};
    static constexpr Execute kShf[2][2] = {
        {&Lanes3<uint32_t, uint32_t, uint32_t, uint32_t, Shf<false, false>>,
         &Lanes3<uint32_t, uint32_t, uint32_t, uint32_t, Shf<false, true>>},
        {&Lanes3<uint32_t, uint32_t, uint32_t, uint32_t, Shf<true, false>>,
         &Lanes3<uint32_t, uint32_t, uint32_t, uint32_t, Shf<true, true>>}};
    o.execute = kShf[left > 0 ? 1 : 0][wrap > 0 ? 1 : 0];
    return true;
  }
  if (m == "popc" || m == "clz" || m == "brev" || m == "bfind") {
    const Type type = d.TakeType();
    d.ExpectOperands(2);
    d.Expect(!IsFloat(type) && Bits(type) >= 32, "no such bit count");
    o.slot = {d.Destination(0, m == "brev" ? type : Type::kU32), d.Source(1, type)};
    o.execute = Bits(type) == 32 ? Unary<uint32_t, int32_t>(m, IsSigned(type))
                                 : Unary<uint64_t, int64_t>(m, IsSigned(type));
    return true;
  }
  if (m == "bfe") {
    const Type type = d.TakeType();
    d.ExpectOperands(4);
    o.slot = {d.Destination(0, type), d.Source(1, type), d.Source(2, Type::kU32),
              d.Source(3, Type::kU32)};
    switch (type) {
      case Type::kU32:
        o.execute = &Lanes3<uint32_t, uint32_t, uint32_t, uint32_t, Bfe<uint32_t>>;
        break;
      case Type::kS32:
        o.execute = &Lanes3<int32_t, int32_t, uint32_t, uint32_t, Bfe<int32_t>>;
        break;
      case Type::kU64:
        o.execute = &Lanes3<uint64_t, uint64_t, uint32_t, uint32_t, Bfe<uint64_t>>;
        break;
      case Type::kS64:
        o.execute = &Lanes3<int64_t, int64_t, uint32_t, uint32_t, Bfe<int64_t>>;
        break;
      default:
        d.Expect(false, "no such bit field");
    }
    return true;
  }
  if (m == "bfi") {
    const Type type = d.TakeType();
    d.ExpectOperands(5);
    d.Expect(type == Type::kB32 || type == Type::kB64, "no such bit field");
    o.slot = {d.Destination(0, type), d.Source(1, type), d.Source(2, type), d.Source(3, Type::kU32),
              d.Source(4, Type::kU32)};
    o.execute = type == Type::kB32 ? &Bfi<uint32_t> : &Bfi<uint64_t>;
    return true;
  }
  if (m == "prmt") {
    const Type type = d.TakeType();
    d.ExpectOperands(4);
    d.Expect(type == Type::kB32, "no such permutation");
    o.slot = {d.Destination(0, type), d.Source(1, type), d.Source(2, type), d.Source(3, type)};
    o.execute = &Lanes3<uint32_t, uint32_t, uint32_t, uint32_t, Prmt>;
    return true;
  }
  if (m == "lop3") {
    const Type type = d.TakeType();
    d.ExpectOperands(5);
    d.Expect(type == Type::kB32, "no such logic");
    o.slot = {d.Destination(0, type), d.Source(1, type), d.Source(2, type), d.Source(3, type),
              d.Source(4, Type::kU32)};
    o.execute = &Lop3;
    return true;
  }
  return false;
}

}  // namespace fakecuda
