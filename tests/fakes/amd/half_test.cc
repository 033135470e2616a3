// Halves: conversions of all of them, and single operations compiled by LLVM for every target.
#include "tests/fakes/amd/testing/elementwise.h"

namespace fakeamd {
namespace {

TEST(AmdHalfTest, AllHalvesGoToFloatsAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const float f = ToFloat(half);
    if (std::isnan(f)) {
      EXPECT_GT(bits & 0x7fff, 0x7c00u);
      continue;
    }
    EXPECT_EQ(ToHalf(f).bits, bits);
    // By the definition of the format.
    const uint32_t exponent = bits >> 10 & 31;
    const uint32_t fraction = bits & 1023;
    if (exponent == 31) continue;
    const double magnitude = exponent == 0
                                 ? std::ldexp(fraction, -24)
                                 : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    EXPECT_EQ(std::abs(double{f}), magnitude);
  }
  // Ties go to even, sums beyond the largest to infinity, denormals are kept.
  EXPECT_EQ(ToHalf(2049.0f).bits, ToHalf(2048.0f).bits);
  EXPECT_EQ(ToHalf(2051.0f).bits, ToHalf(2052.0f).bits);
  EXPECT_EQ(ToHalf(65519.0f).bits, 0x7bff);
  EXPECT_EQ(ToHalf(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToHalf(0x1p-25f).bits, 0);
  EXPECT_EQ(ToHalf(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
  EXPECT_EQ(ToBrain(1.00390625).bits, 0x3f80);  // a tie
  EXPECT_EQ(ToBrain(1.01171875).bits, 0x3f82);
}

uint16_t SameNan(uint16_t bits) { return (bits & 0x7fff) > 0x7c00 ? 0x7e00 : bits; }

// `body` computes the half %h of the halves %x, %y and %z.
template <class F>
void ExpectHalves(const std::string& what, const std::string& body, F f,
                  const std::string& more = "") {
  std::string code;
  const std::pair<std::string, std::string> operands[] = {{"a", "x"}, {"b", "y"}, {"c", "z"}};
  for (const auto& [from, to] : operands) {
    code += "  %" + to + " = bitcast i16 %" + from + " to half\n";
  }
  // NaN has many encodings; the test takes one.
  code += body +
          "\n  %nan = fcmp uno half %h, 0.0\n  %bits = bitcast half %h to i16\n"
          "  %r = select i1 %nan, i16 32256, i16 %bits";
  ExpectTernary<uint16_t>(
      what, code,
      [&](uint16_t a, uint16_t b, uint16_t c) {
        return SameNan(ToHalf(double{f(double{ToFloat(Half{a})}, double{ToFloat(Half{b})},
                                       double{ToFloat(Half{c})})})
                           .bits);
      },
      more);
}

TEST(AmdHalfTest, Operations) {
  // Sums and products of halves are exact as doubles.
  ExpectHalves("fadd", "  %h = fadd half %x, %y", [](double x, double y, double) { return x + y; });
  ExpectHalves("fsub", "  %h = fsub half %x, %y", [](double x, double y, double) { return x - y; });
  ExpectHalves("fmul", "  %h = fmul half %x, %y", [](double x, double y, double) { return x * y; });
  ExpectHalves("fdiv", "  %h = fdiv half %x, %y", [](double x, double y, double) { return x / y; });
  ExpectHalves("fneg", "  %h = fneg half %x", [](double x, double, double) { return -x; });
  ExpectHalves(
      "floor", "  %h = call half @llvm.floor.f16(half %x)",
      [](double x, double, double) { return std::floor(x); },
      "declare half @llvm.floor.f16(half)\n");
  ExpectHalves("select", "  %o = fcmp olt half %x, %y\n  %h = select i1 %o, half %y, half %z",
               [](double x, double y, double z) { return x < y ? y : z; });
  // No product: LLVM 19 makes of one that is rounded to half a v_fma_mixlo_f16 that adds +0, so
  // -0 becomes +0 (llvm-project, pull request 214544).
  ExpectHalves(
      "wide",
      "  %w = fpext half %x to float\n  %q = fsub float %w, 3.0\n  %h = fptrunc float %q to half",
      [](double x, double, double) { return x - 3; });
  ExpectHalves(
      "fma of floats and halves",
      "  %u = fpext half %x to float\n  %v = fpext half %y to float\n  %w = fpext half %z to "
      "float\n"
      "  %f = call float @llvm.fma.f32(float %u, float %v, float %w)\n  %h = fptrunc float %f to "
      "half",
      [](double x, double y, double z) { return double{static_cast<float>(std::fma(x, y, z))}; },
      "declare float @llvm.fma.f32(float, float, float)\n");
  ExpectHalves(
      "fma of floats",
      "  %x32 = fpext half %x to float\n  %y32 = fpext half %y to float\n  %z32 = fpext half %z to "
      "float\n  %u = fadd float %x32, 1.0\n  %v = fadd float %y32, 1.0\n"
      "  %w = fadd float %z32, 1.0\n"
      "  %f = call float @llvm.fma.f32(float %u, float %v, float %w)\n  %h = fptrunc float %f to "
      "half",
      [](double x, double y, double z) {
        return double{std::fma(static_cast<float>(x + 1), static_cast<float>(y + 1),
                               static_cast<float>(z + 1))};
      },
      "declare float @llvm.fma.f32(float, float, float)\n");
}

}  // namespace
}  // namespace fakeamd
