// Floating-point operations and conversions, compiled by LLVM for every target, against the host:
// bit for bit, since each of them rounds once.
#include <algorithm>

#include "tests/fakes/amd/testing/elementwise.h"

namespace fakeamd {
namespace {

template <class T>
void AllFloat() {
  const std::string t = TypeOf<T>().name;
  const std::string suffix = sizeof(T) == 4 ? "f32" : "f64";
  const auto op = [&](const std::string& name) { return "  %r = " + name + " " + t + " %a, %b"; };
  ExpectBinary<T>("fadd", op("fadd"), [](T a, T b) { return a + b; });
  ExpectBinary<T>("fsub", op("fsub"), [](T a, T b) { return a - b; });
  ExpectBinary<T>("fmul", op("fmul"), [](T a, T b) { return a * b; });
  ExpectBinary<T>("fdiv", op("fdiv"), [](T a, T b) { return a / b; });
  const auto unary = [&](const std::string& name) {
    return "  %r = call " + t + " @llvm." + name + "." + suffix + "(" + t + " %a)";
  };
  const auto declared = [&](const std::string& name, const std::string& operands) {
    return "declare " + t + " @llvm." + name + "." + suffix + "(" + operands + ")\n";
  };
  ExpectUnary<T>("sqrt", unary("sqrt"), [](T a) { return std::sqrt(a); }, declared("sqrt", t));
  ExpectUnary<T>("floor", unary("floor"), [](T a) { return std::floor(a); }, declared("floor", t));
  ExpectUnary<T>("ceil", unary("ceil"), [](T a) { return std::ceil(a); }, declared("ceil", t));
  ExpectUnary<T>("trunc", unary("trunc"), [](T a) { return std::trunc(a); }, declared("trunc", t));
  ExpectUnary<T>("rint", unary("rint"), [](T a) { return std::nearbyint(a); }, declared("rint", t));
  ExpectUnary<T>("fabs", unary("fabs"), [](T a) { return std::abs(a); }, declared("fabs", t));
  ExpectUnary<T>("fneg", "  %r = fneg " + t + " %a", [](T a) { return -a; });
  ExpectTernary<T>(
      "fma",
      "  %r = call " + t + " @llvm.fma." + suffix + "(" + t + " %a, " + t + " %b, " + t + " %c)",
      [](T a, T b, T c) { return std::fma(a, b, c); }, declared("fma", t + ", " + t + ", " + t));
  const auto less =
      "  %c = fcmp olt " + t + " %a, %b\n  %r = select i1 %c, " + t + " %a, " + t + " %b";
  ExpectBinary<T>("olt", less, [](T a, T b) { return a < b ? a : b; });
  const auto unordered =
      "  %c = fcmp ult " + t + " %a, %b\n  %r = select i1 %c, " + t + " %a, " + t + " 7.0";
  ExpectBinary<T>("ult", unordered, [](T a, T b) { return !(a >= b) ? a : T{7}; });
  // Signs and magnitudes of operands are part of instructions.
  ExpectTernary<T>(
      "modifiers",
      "  %n = fneg " + t + " %a\n  %m = call " + t + " @llvm.fabs." + suffix + "(" + t +
          " %b)\n  %r = call " + t + " @llvm.fma." + suffix + "(" + t + " %n, " + t + " %m, " + t +
          " %c)",
      [](T a, T b, T c) { return std::fma(-a, std::abs(b), c); },
      declared("fma", t + ", " + t + ", " + t) + declared("fabs", t));
}

TEST(AmdFloatTest, Single) { AllFloat<float>(); }
TEST(AmdFloatTest, Double) { AllFloat<double>(); }

template <class To, class From>
To Saturated(From x) {
  if (std::isnan(x)) return 0;
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (x >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

template <class To, class From>
void ToInteger() {
  const std::string t = TypeOf<From>().name;
  const std::string i = TypeOf<To>().name;
  const std::string name = std::string(std::is_signed_v<To> ? "fptosi" : "fptoui") + ".sat." + i +
                           (sizeof(From) == 4 ? ".f32" : ".f64");
  ExpectUnary<From>(
      name, "  %r = call " + i + " @llvm." + name + "(" + t + " %a)",
      [](From a) { return Saturated<To>(a); }, "declare " + i + " @llvm." + name + "(" + t + ")\n");
}
template <class From, class To>
void FromInteger() {
  const std::string op = std::is_signed_v<From> ? "sitofp" : "uitofp";
  ExpectUnary<From>(op + std::to_string(sizeof(From)) + std::to_string(sizeof(To)),
                    "  %r = " + op + " " + TypeOf<From>().name + " %a to " + TypeOf<To>().name,
                    [](From a) { return static_cast<To>(a); });
}

TEST(AmdFloatTest, Conversions) {
  ToInteger<int32_t, float>();
  ToInteger<uint32_t, float>();
  ToInteger<int64_t, float>();
  ToInteger<uint64_t, double>();
  ToInteger<int32_t, double>();
  FromInteger<int32_t, float>();
  FromInteger<uint32_t, float>();
  FromInteger<int64_t, float>();
  FromInteger<uint64_t, float>();
  FromInteger<int64_t, double>();
  FromInteger<uint64_t, double>();
  FromInteger<uint8_t, float>();
  FromInteger<int16_t, double>();
  ExpectUnary<float>("fpext", "  %r = fpext float %a to double", [](float a) { return double{a}; });
  ExpectUnary<double>("fptrunc", "  %r = fptrunc double %a to float",
                      [](double a) { return static_cast<float>(a); });
}

TEST(AmdFloatTest, DivisionsNearTheLimits) {
  // Quotients and operands that are denormal, huge, or overflow.
  std::vector<float> a, b;
  std::mt19937 random(7);
  for (size_t i = 0; i < kTestElements; ++i) {
    const auto number = [&] {
      const int exponent = static_cast<int>(random() % 276) - 149;
      return std::ldexp(1 + static_cast<float>(random() & 0x7fffff) * 0x1p-23f, exponent);
    };
    a.push_back(number());
    b.push_back(number());
  }
  std::vector<float> expected;
  for (size_t i = 0; i < a.size(); ++i) expected.push_back(a[i] / b[i]);
  ExpectElements<float>("fdiv", {TypeOf<float>(), TypeOf<float>()}, TypeOf<float>(),
                        "  %r = fdiv float %a, %b", {ToBytes(a), ToBytes(b)}, expected);
  std::vector<double> x, y, quotient;
  for (size_t i = 0; i < kTestElements; ++i) {
    const auto number = [&] {
      const int exponent = static_cast<int>(random() % 2098) - 1074;
      return std::ldexp(1 + static_cast<double>(random()) * 0x1p-32, exponent);
    };
    x.push_back(number());
    y.push_back(number());
  }
  // A denormal quotient that lies just beside the middle of two numbers: which one is nearer is
  // decided by an error far below the last place of the sum that is scaled.
  x[0] = 1;
  y[0] = std::bit_cast<double>(uint64_t{0xffd75a8c17110bef});
  for (size_t i = 0; i < kTestElements; ++i) quotient.push_back(x[i] / y[i]);
  ExpectElements<double>("fdiv", {TypeOf<double>(), TypeOf<double>()}, TypeOf<double>(),
                         "  %r = fdiv double %a, %b", {ToBytes(x), ToBytes(y)}, quotient);
}

}  // namespace
}  // namespace fakeamd
