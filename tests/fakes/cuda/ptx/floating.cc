// f32 and f64 arithmetic (PTX ISA, "Floating-Point Instructions"), rounded to nearest even. The
// host computes; this file is compiled without contraction. A NaN result of f32 is 0x7fffffff.
//
// The approximations (.approx) have no defined bits; these are the correctly rounded values or
// next to them, which lie within the stated errors.
#include <cmath>
#include <limits>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/lanes.h"

namespace fakecuda {
namespace {

float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

// What a kernel's result becomes and its operands are: Plain, or with .ftz or .sat.
struct Plain {
  static float In(float x) { return x; }
  static float Out(float x) {
    return std::isnan(x) ? std::bit_cast<float>(uint32_t{0x7fffffff}) : x;
  }
  static double In(double x) { return x; }
  static double Out(double x) { return x; }
};
struct Ftz {
  static float In(float x) { return Flush(x); }
  static float Out(float x) { return Flush(Plain::Out(x)); }
};
struct Sat {
  static float In(float x) { return x; }
  static float Out(float x) { return std::isnan(x) || x <= 0 ? 0.0F : x > 1 ? 1.0F : x; }
};

template <class T>
T FloatAdd(T a, T b) {
  return a + b;
}
template <class T>
T FloatSub(T a, T b) {
  return a - b;
}
template <class T>
T Mul(T a, T b) {
  return a * b;
}
template <class T>
T FloatDiv(T a, T b) {
  return a / b;
}
template <class T>
T Fma(T a, T b, T c) {
  return std::fma(a, b, c);
}
template <class T>
T Fms(T a, T b, T c) {
  return std::fma(a, b, -c);
}
template <class T>
T Fnma(T a, T b, T c) {
  return std::fma(-a, b, c);
}
// The smaller one, -0 below +0; of a NaN and a number the number.
template <class T>
T FloatMin(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T FloatMax(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class T>
T MinNan(T a, T b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : FloatMin(a, b);
}
template <class T>
T MaxNan(T a, T b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : FloatMax(a, b);
}
// PTX ISA, "copysign": the sign of a, the rest of b.
template <class T>
T Copysign(T a, T b) {
  return std::copysign(b, a);
}
template <class T>
T Sqrt(T a) {
  return std::sqrt(a);
}
template <class T>
T Rcp(T a) {
  return T{1} / a;
}
template <class T>
T FloatNeg(T a) {
  return -a;
}
template <class T>
T FloatAbs(T a) {
  return std::fabs(a);
}
float Rsqrt(float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
double Rsqrt64(double a) { return 1.0 / std::sqrt(a); }
// One of the four floats around the true value, which are all at most 2 ulp from it: what CUDA's
// guide bounds exp2f by, which is this instruction. PTX ISA, "ex2", states the results for zeros,
// subnormal numbers, infinities and NaN.
float Ex2(float a) {
  if (std::fpclassify(a) == FP_SUBNORMAL || a == 0) return 1;
  const long double exact = std::exp2(static_cast<long double>(a));
  if (!std::isfinite(a) || exact == 0) return static_cast<float>(exact);
  auto below = static_cast<float>(exact);
  if (static_cast<long double>(below) > exact) below = std::nextafter(below, 0.0F);
  if (exact > std::numeric_limits<float>::max()) return std::numeric_limits<float>::infinity();
  const float above = std::nextafter(below, std::numeric_limits<float>::infinity());
  switch (std::bit_cast<uint32_t>(a) * 0x9e3779b1U >> 30) {
    case 0:
      return std::nextafter(below, 0.0F);
    case 1:
      return below;
    case 2:
      return above;
    default:
      return above + (above - below);  // floats above a power of two are too far apart: that itself
  }
}
float Lg2(float a) { return static_cast<float>(std::log2(static_cast<double>(a))); }
float Sin(float a) { return static_cast<float>(std::sin(static_cast<double>(a))); }
float Cos(float a) { return static_cast<float>(std::cos(static_cast<double>(a))); }
float Tanh(float a) { return static_cast<float>(std::tanh(static_cast<double>(a))); }

template <class T, class P, auto F>
T Wrap1(T a) {
  return P::Out(F(P::In(a)));
}
template <class T, class P, auto F>
T Wrap2(T a, T b) {
  return P::Out(F(P::In(a), P::In(b)));
}
template <class T, class P, auto F>
T Wrap3(T a, T b, T c) {
  return P::Out(F(P::In(a), P::In(b), P::In(c)));
}

template <class T, class P, auto F>
inline constexpr Execute kOne = &Lanes1<T, T, Wrap1<T, P, F>>;
template <class T, class P, auto F>
inline constexpr Execute kTwo = &Lanes2<T, T, T, Wrap2<T, P, F>>;
template <class T, class P, auto F>
inline constexpr Execute kThree = &Lanes3<T, T, T, T, Wrap3<T, P, F>>;

// Operations of both types.
template <class T, class P>
Execute Common(const std::string& m, bool nan) {
  if (m == "add") return kTwo<T, P, FloatAdd<T>>;
  if (m == "sub") return kTwo<T, P, FloatSub<T>>;
  if (m == "mul") return kTwo<T, P, Mul<T>>;
  if (m == "div") return kTwo<T, P, FloatDiv<T>>;
  if (m == "fma" || m == "mad") return kThree<T, P, Fma<T>>;
  if (m == "fma-") return kThree<T, P, Fms<T>>;
  if (m == "-fma") return kThree<T, P, Fnma<T>>;
  if (m == "min") return nan ? kTwo<T, P, MinNan<T>> : kTwo<T, P, FloatMin<T>>;
  if (m == "max") return nan ? kTwo<T, P, MaxNan<T>> : kTwo<T, P, FloatMax<T>>;
  if (m == "sqrt") return kOne<T, P, Sqrt<T>>;
  if (m == "rcp") return kOne<T, P, Rcp<T>>;
  if (m == "neg") return kOne<T, P, FloatNeg<T>>;
  if (m == "abs") return kOne<T, P, FloatAbs<T>>;
  if (m == "copysign") return &Lanes2<T, T, T, Copysign<T>>;
  return nullptr;
}

template <class P>
Execute Single(const std::string& m, bool nan) {
  if (m == "rsqrt") return kOne<float, P, Rsqrt>;
  if (m == "ex2") return kOne<float, P, Ex2>;
  if (m == "lg2") return kOne<float, P, Lg2>;
  if (m == "sin") return kOne<float, P, Sin>;
  if (m == "cos") return kOne<float, P, Cos>;
  if (m == "tanh") return kOne<float, P, Tanh>;
  return Common<float, P>(m, nan);
}

template <class T, int kClass>
bool Testp(T x) {
  switch (kClass) {
    case 0:
      return std::isfinite(x);
    case 1:
      return std::isinf(x);
    case 2:
      return !std::isnan(x);
    case 3:
      return std::isnan(x);
    case 4:
      return std::isnormal(x);
    default:
      return std::fpclassify(x) == FP_SUBNORMAL;
  }
}

template <class T>
Execute TestpOf(int kind) {
  static constexpr Execute kTests[] = {
      &Lanes1<bool, T, Testp<T, 0>>, &Lanes1<bool, T, Testp<T, 1>>, &Lanes1<bool, T, Testp<T, 2>>,
      &Lanes1<bool, T, Testp<T, 3>>, &Lanes1<bool, T, Testp<T, 4>>, &Lanes1<bool, T, Testp<T, 5>>};
  return kind < 0 ? nullptr : kTests[kind];
}

}  // namespace

bool DecodeFloat(Decoder& d) {
  const std::string& m = d.mnemonic();
  const Type type = d.LastType();
  if (type != Type::kF32 && type != Type::kF64) return false;
  Instruction& o = d.out();
  if (m == "testp") {
    const int kind =
        d.TakeOne({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    d.TakeType();
    d.ExpectOperands(2);
    o.execute = type == Type::kF32 ? TestpOf<float>(kind) : TestpOf<double>(kind);
    d.Expect(o.execute != nullptr, "a property is missing");
    o.slot = {d.Destination(0, Type::kPred), d.Source(1, type)};
    return true;
  }
  const bool approx = d.TakeOne({"approx", "full"}) >= 0;
  const bool nearest = d.Take("rn");
  const bool ftz = d.Take("ftz");
  const bool sat = d.Take("sat");
  const bool nan = d.Take("NaN");
  const bool only_approx =
      m == "rsqrt" || m == "ex2" || m == "lg2" || m == "sin" || m == "cos" || m == "tanh";
  const bool ternary = m == "fma" || m == "mad" || m == "fma-" || m == "-fma";
  const bool rounds = m == "div" || m == "sqrt" || m == "rcp" || ternary;
  if (type == Type::kF32) {
    o.execute = sat ? Single<Sat>(m, nan) : ftz ? Single<Ftz>(m, nan) : Single<Plain>(m, nan);
  } else {
    o.execute = m == "rsqrt" ? kOne<double, Plain, Rsqrt64> : Common<double, Plain>(m, nan);
  }
  if (o.execute == nullptr) return false;
  d.TakeType();
  d.Expect(!(ftz && sat), ".ftz.sat is not supported");
  d.Expect(type == Type::kF32 || !(ftz || sat), "a modifier that f64 does not have");
  d.Expect(!only_approx || approx, ".approx is missing");
  d.Expect(!rounds || approx || nearest, "a rounding is missing");
  d.Expect(!approx || only_approx || m == "div" || m == "sqrt" || m == "rcp",
           "no approximation of this");
  d.Expect(!nan || m == "min" || m == "max", ".NaN is for min and max");
  const bool binary = m == "add" || m == "sub" || m == "mul" || m == "div" || m == "min" ||
                      m == "max" || m == "copysign";
  d.ExpectOperands(ternary ? 4 : binary ? 3 : 2);
  o.slot[0] = d.Destination(0, type);
  o.slot[1] = d.Source(1, type);
  if (binary || ternary) o.slot[2] = d.Source(2, type);
  if (ternary) o.slot[3] = d.Source(3, type);
  return true;
}

}  // namespace fakecuda
