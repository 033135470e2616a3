// cvt between all kinds of types, in all roundings.
#include <gtest/gtest.h>

#include "tests/fakes/cuda/ptx/rounding_judge.h"
#include "tests/fakes/cuda/ptx/run_ptx.h"

namespace fakecuda {
namespace {

TEST(ConvertTest, FloatsToHalvesAreNearest) {
  for (const bool brain : {false, true}) {
    const HalfTable table(brain);
    std::mt19937_64 random(2);
    std::vector<std::vector<uint64_t>> values(1);
    for (uint64_t h = 0; h < 0x8000; ++h) {
      // Beside the middle between two halves and on it.
      const double v = (table.ValueOf(h) + table.ValueOf(h + 1)) / 2;
      if (!std::isfinite(v)) continue;
      const auto middle = std::bit_cast<uint32_t>(static_cast<float>(v));
      values[0].push_back(middle + static_cast<uint32_t>(random() % 3) - (middle > 0 ? 1 : 0));
    }
    for (const uint64_t v : FloatBits(false, 20000)) values[0].push_back(v);
    std::string error;
    const auto results =
        Evaluate(brain ? "cvt.rn.bf16.f32 d, a;" : "cvt.rn.f16.f32 d, a;", "hf", values, &error);
    ASSERT_EQ(error, "");
    for (size_t i = 0; i < results.size(); ++i) {
      const float x = Value<float>(values[0][i]);
      const uint64_t expected = std::isinf(x) ? (x < 0 ? 0x8000u : 0u) | (brain ? 0x7f80u : 0x7c00u)
                                              : table.Nearest(x, std::signbit(x));
      ASSERT_EQ(results[i], expected) << x;
    }
    // And back: exact.
    std::vector<std::vector<uint64_t>> halves(1);
    for (uint64_t h = 0; h <= 0xffff; ++h) halves[0].push_back(h);
    const auto wide =
        Evaluate(brain ? "cvt.f32.bf16 d, a;" : "cvt.f32.f16 d, a;", "fh", halves, &error);
    ASSERT_EQ(error, "");
    for (uint64_t h = 0; h <= 0xffff; ++h) {
      const double v = table.ValueOf(h);
      const float w = Value<float>(wide[h]);
      EXPECT_TRUE(std::isnan(v) ? std::isnan(w) : v == w && std::signbit(v) == std::signbit(w));
    }
  }
}

TEST(ConvertTest, FloatsToIntegersClamp) {
  // PTX ISA, "cvt": clamped; NaN is 0, for 64-bit results or f64 the highest bit alone.
  const auto values = std::vector<std::vector<uint64_t>>{FloatBits(false, 20000)};
  const auto wide = std::vector<std::vector<uint64_t>>{FloatBits(true, 20000)};
  for (const bool is_double : {false, true}) {
    for (const int bits : {16, 32, 64}) {
      for (const bool is_signed : {false, true}) {
        for (const std::string round : {"rzi", "rni", "rmi", "rpi"}) {
          const std::string to = (is_signed ? "s" : "u") + std::to_string(bits);
          const std::string instruction =
              "cvt." + round + "." + to + (is_double ? ".f64" : ".f32") + " d, a;";
          SCOPED_TRACE(instruction);
          std::string types(1, bits == 16 ? 'h' : bits == 32 ? 'w' : 'l');
          types += is_double ? 'g' : 'f';
          std::string error;
          const auto& in = is_double ? wide : values;
          const auto results = Evaluate(instruction, types, in, &error);
          ASSERT_EQ(error, "");
          const long double low = is_signed ? -std::ldexp(1.0L, bits - 1) : 0.0L;
          const long double high = std::ldexp(1.0L, bits - (is_signed ? 1 : 0)) - 1;
          for (size_t i = 0; i < results.size(); ++i) {
            const long double x = is_double ? Value<double>(in[0][i])
                                            : static_cast<long double>(Value<float>(in[0][i]));
            uint64_t expected = 0;
            if (std::isnan(x)) {
              expected = is_double || bits == 64 ? uint64_t{1} << (bits - 1) : 0;
            } else {
              const long double whole = round == "rzi"   ? std::trunc(x)
                                        : round == "rni" ? std::rint(x)
                                        : round == "rmi" ? std::floor(x)
                                                         : std::ceil(x);
              const long double clamped = std::fmin(std::fmax(whole, low), high);
              expected = clamped < 0 ? static_cast<uint64_t>(static_cast<int64_t>(clamped))
                                     : static_cast<uint64_t>(clamped);
            }
            const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
            ASSERT_EQ(results[i] & mask, expected & mask) << static_cast<double>(x);
          }
        }
      }
    }
  }
}

TEST(ConvertTest, IntegersToFloatsRoundAsAsked) {
  std::mt19937_64 random(4);
  std::vector<std::vector<uint64_t>> values(1);
  for (int i = 0; i < 20000; ++i) values[0].push_back(random() >> (random() % 64));
  for (const bool is_signed : {false, true}) {
    for (const std::string round : {"rn", "rz", "rm", "rp"}) {
      const std::string instruction =
          "cvt." + round + ".f32." + (is_signed ? "s64" : "u64") + " d, a;";
      SCOPED_TRACE(instruction);
      std::string error;
      const auto results = Evaluate(instruction, "fl", values, &error);
      ASSERT_EQ(error, "");
      for (size_t i = 0; i < results.size(); ++i) {
        const long double x = is_signed
                                  ? static_cast<long double>(static_cast<int64_t>(values[0][i]))
                                  : static_cast<long double>(values[0][i]);
        float expected = static_cast<float>(x);  // nearest; x is exact
        const bool up = static_cast<long double>(expected) > x;
        const bool down = static_cast<long double>(expected) < x;
        const bool want_low = round == "rm" || (round == "rz" && x > 0);
        const bool want_high = round == "rp" || (round == "rz" && x < 0);
        if (up && want_low) expected = std::nextafter(expected, -INFINITY);
        if (down && want_high) expected = std::nextafter(expected, INFINITY);
        ASSERT_EQ(Value<float>(results[i]), expected) << values[0][i];
      }
    }
  }
}

TEST(ConvertTest, IntegersAreExtendedAndCut) {
  const std::vector<std::vector<uint64_t>> values = {
      {0x00, 0x7f, 0x80, 0xff, 0x8000, 0xffff, 0x80000000, 0xffffffff, 0x12345678}};
  std::string error;
  const auto run = [&](const std::string& instruction, const std::string& types) {
    auto r = Evaluate(instruction, types, values, &error);
    EXPECT_EQ(error, "") << instruction;
    return r;
  };
  const auto s8 = run("cvt.s32.s8 d, a;", "ww");
  const auto u8 = run("cvt.u32.u8 d, a;", "ww");
  const auto s64 = run("cvt.s64.s32 d, a;", "lw");
  const auto u64 = run("cvt.u64.u32 d, a;", "lw");
  const auto sat = run("cvt.sat.s8.s32 d, a;", "ww");
  for (size_t i = 0; i < values[0].size(); ++i) {
    const auto x = static_cast<uint32_t>(values[0][i]);
    EXPECT_EQ(static_cast<int32_t>(s8[i]), static_cast<int8_t>(x));
    EXPECT_EQ(u8[i], x & 255);
    EXPECT_EQ(static_cast<int64_t>(s64[i]), static_cast<int32_t>(x));
    EXPECT_EQ(u64[i], x);
    const int32_t wide = static_cast<int32_t>(x);
    EXPECT_EQ(static_cast<int32_t>(sat[i]), wide < -128 ? -128 : wide > 127 ? 127 : wide);
  }
}

TEST(ConvertTest, FloatsToIntegralFloatsAndBetweenWidths) {
  const std::vector<std::vector<uint64_t>> wide = {FloatBits(true, 20000)};
  std::string error;
  const auto narrow = Evaluate("cvt.rn.f32.f64 d, a;", "fg", wide, &error);
  ASSERT_EQ(error, "");
  const auto floors = Evaluate("cvt.rmi.f64.f64 d, a;", "gg", wide, &error);
  ASSERT_EQ(error, "");
  for (size_t i = 0; i < narrow.size(); ++i) {
    const double x = Value<double>(wide[0][i]);
    if (std::isnan(x)) {
      EXPECT_EQ(narrow[i], 0x7fffffffu);
      continue;
    }
    EXPECT_EQ(narrow[i], BitsOf<float>(static_cast<float>(x)));
    EXPECT_EQ(floors[i], BitsOf<double>(std::floor(x)));
  }
}

}  // namespace
}  // namespace fakecuda
