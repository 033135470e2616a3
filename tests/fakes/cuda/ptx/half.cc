// f16 and bf16 arithmetic, alone and in pairs (PTX ISA, "Half Precision Floating-Point
// Instructions"): computed exactly and rounded once. A NaN result is 0x7fff.
#include <cmath>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/float_format.h"
#include "tests/fakes/cuda/ptx/warp.h"

namespace fakecuda {
namespace {

template <bool kBrain>
constexpr FloatFormat Format() {
  return kBrain ? kBF16Format : kF16Format;
}

enum class Op : uint8_t { kAdd, kSub, kMul, kFma, kMin, kMax, kNeg, kAbs, kEx2, kTanh };
struct OpName {
  std::string_view name;
  Op op;
  int operands;
};
constexpr OpName kOps[] = {{"add", Op::kAdd, 2},  {"sub", Op::kSub, 2}, {"mul", Op::kMul, 2},
                           {"fma", Op::kFma, 3},  {"min", Op::kMin, 2}, {"max", Op::kMax, 2},
                           {"neg", Op::kNeg, 1},  {"abs", Op::kAbs, 1}, {"ex2", Op::kEx2, 1},
                           {"tanh", Op::kTanh, 1}};

constexpr uint32_t kNanResult = 1;  // .NaN
constexpr uint32_t kFlush = 2;      // .ftz
constexpr uint32_t kSat = 4;        // .sat
constexpr uint32_t kRelu = 8;       // .relu

// a + b as a double and what it lost (Knuth's two-sum).
template <bool kBrain>
uint16_t Sum(double a, double b) {
  const double sum = a + b;
  double error = 0;
  if (std::isfinite(sum)) {
    const double part = sum - a;
    error = (a - (sum - part)) + (b - part);
  }
  return static_cast<uint16_t>(EncodeDouble(Format<kBrain>(), sum, error, Round::kNearest));
}

template <bool kBrain>
uint16_t Compute(Op op, uint32_t flags, uint16_t x, uint16_t y, uint16_t z) {
  const FloatFormat format = Format<kBrain>();
  if (op == Op::kNeg) return x ^ 0x8000;
  if (op == Op::kAbs) return x & 0x7fff;
  const double a = DecodeFloat(format, x);
  const double b = DecodeFloat(format, y);
  const double c = DecodeFloat(format, z);
  switch (op) {
    case Op::kAdd:
      return Sum<kBrain>(a, b);
    case Op::kSub:
      return Sum<kBrain>(a, -b);
    case Op::kMul:
      return static_cast<uint16_t>(EncodeDouble(format, a * b, 0, Round::kNearest));
    case Op::kFma:
      return Sum<kBrain>(a * b, c);
    case Op::kEx2:
      return static_cast<uint16_t>(EncodeDouble(format, std::exp2(a), 0, Round::kNearest));
    case Op::kTanh:
      return static_cast<uint16_t>(EncodeDouble(format, std::tanh(a), 0, Round::kNearest));
    default: {
      const bool smaller = op == Op::kMin;
      if (std::isnan(a) || std::isnan(b)) {
        const bool both = std::isnan(a) && std::isnan(b);
        if (both || (flags & kNanResult) != 0) return 0x7fff;
        return std::isnan(a) ? y : x;
      }
      if (a == b) return std::signbit(a) == smaller ? x : y;
      return (a < b) == smaller ? x : y;
    }
  }
}

template <bool kBrain>
uint16_t Modified(Op op, uint32_t flags, uint16_t x, uint16_t y, uint16_t z) {
  const uint16_t least = static_cast<uint16_t>(1 << Format<kBrain>().mantissa);  // least normal
  const auto flush = [&](uint16_t v) {
    return (flags & kFlush) != 0 && (v & 0x7fff) < least ? static_cast<uint16_t>(v & 0x8000) : v;
  };
  uint16_t r = flush(Compute<kBrain>(op, flags, flush(x), flush(y), flush(z)));
  const double value = DecodeFloat(Format<kBrain>(), r);
  if ((flags & kRelu) != 0 && !std::isnan(value) && std::signbit(value)) r = 0;
  if ((flags & kSat) != 0) {
    const auto one = static_cast<uint16_t>(EncodeDouble(Format<kBrain>(), 1, 0, Round::kNearest));
    r = std::isnan(value) || value <= 0 ? 0 : value > 1 ? one : r;
  }
  return r;
}

template <bool kBrain, int kPairs>
void Half(Warp& w, const Instruction& i, uint32_t lanes) {
  const Op op = static_cast<Op>(i.count);
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const uint64_t* b = w.Slot(i.slot[2]);
  const uint64_t* c = w.Slot(i.slot[3]);
  Each(lanes, [&](int l) {
    uint64_t result = 0;
    for (int h = 0; h < kPairs; ++h) {
      const int at = 16 * h;
      const uint16_t r =
          Modified<kBrain>(op, i.flags, static_cast<uint16_t>(a[l] >> at),
                           static_cast<uint16_t>(b[l] >> at), static_cast<uint16_t>(c[l] >> at));
      result |= uint64_t{r} << at;
    }
    d[l] = result;
  });
}

}  // namespace

bool DecodeHalf(Decoder& d) {
  const Type type = d.LastType();
  const bool single = type == Type::kF16 || type == Type::kBF16;
  const bool brain = type == Type::kBF16 || type == Type::kBF16x2;
  if (!single && type != Type::kF16x2 && type != Type::kBF16x2) return false;
  const OpName* op = nullptr;
  for (const OpName& o : kOps) {
    if (o.name == d.mnemonic()) op = &o;
  }
  if (op == nullptr) return false;
  d.TakeType();
  const bool approx = d.Take("approx");
  const bool nearest = d.Take("rn");
  Instruction& o = d.out();
  o.flags = (d.Take("NaN") ? kNanResult : 0) | (d.Take("ftz") ? kFlush : 0) |
            (d.Take("sat") ? kSat : 0) | (d.Take("relu") ? kRelu : 0);
  d.Expect(approx == (op->op == Op::kEx2 || op->op == Op::kTanh), "approximation or not");
  d.Expect(op->op != Op::kFma || nearest, "a rounding is missing");
  d.ExpectOperands(static_cast<size_t>(op->operands) + 1);
  o.count = static_cast<uint8_t>(op->op);
  o.slot[0] = d.Destination(0, type == Type::kF16 || type == Type::kBF16 ? Type::kB16 : Type::kB32);
  const uint32_t zero = d.Constant(0);
  o.slot[1] = o.slot[2] = o.slot[3] = zero;
  for (int k = 1; k <= op->operands; ++k) {
    o.slot[static_cast<size_t>(k)] =
        d.Source(static_cast<size_t>(k), single ? Type::kB16 : Type::kB32);
  }
  if (single) {
    o.execute = brain ? &Half<true, 1> : &Half<false, 1>;
  } else {
    o.execute = brain ? &Half<true, 2> : &Half<false, 2>;
  }
  return true;
}

}  // namespace fakecuda
