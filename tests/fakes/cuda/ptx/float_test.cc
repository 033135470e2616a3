// f32 and f64 arithmetic and comparisons on edge values and random bits.
#include <gtest/gtest.h>

#include "tests/fakes/cuda/ptx/rounding_judge.h"
#include "tests/fakes/cuda/ptx/run_ptx.h"

namespace fakecuda {
namespace {

template <class T>
void CheckArithmetic(const std::string& op, const std::string& instruction, size_t operands) {
  SCOPED_TRACE(instruction);
  constexpr bool kWide = sizeof(T) == 8;
  const size_t count = 20000;
  const std::vector<uint64_t> all = FloatBits(kWide, 3 * count);
  std::vector<std::vector<uint64_t>> values;
  for (size_t k = 0; k < operands; ++k) {
    values.emplace_back(all.begin() + static_cast<int64_t>(k * count),
                        all.begin() + static_cast<int64_t>((k + 1) * count));
  }
  std::string error;
  const std::string types(operands + 1, kWide ? 'g' : 'f');
  const auto results = Evaluate(instruction, types, values, &error);
  ASSERT_EQ(error, "");
  for (size_t i = 0; i < count; ++i) {
    const T a = Value<T>(values[0][i]);
    const T b = operands > 1 ? Value<T>(values[1][i]) : T{0};
    const T c = operands > 2 ? Value<T>(values[2][i]) : T{0};
    const T expected = Exact<T>(op, a, b, c);
    if (std::isnan(expected)) {
      if (kWide) {
        ASSERT_TRUE(std::isnan(Value<T>(results[i])));
      } else {
        ASSERT_EQ(results[i], 0x7fffffffu);  // the canonical NaN
      }
    } else {
      ASSERT_EQ(results[i], BitsOf<T>(expected)) << a << " " << b << " " << c;
    }
  }
}

TEST(FloatTest, ArithmeticRoundsOnce) {
  for (const std::string op : {"add", "sub", "mul", "div"}) {
    CheckArithmetic<float>(op, op + ".rn.f32 d, a, b;", 2);
    CheckArithmetic<double>(op, op + ".rn.f64 d, a, b;", 2);
  }
  CheckArithmetic<float>("fma", "fma.rn.f32 d, a, b, c;", 3);
  CheckArithmetic<double>("fma", "fma.rn.f64 d, a, b, c;", 3);
}

// A square root is right if half a unit to either side the squares lie to either side of x.
template <class T>
void CheckSqrt(const std::string& instruction) {
  constexpr bool kWide = sizeof(T) == 8;
  const std::vector<std::vector<uint64_t>> values = {FloatBits(kWide, 20000)};
  std::string error;
  const auto results = Evaluate(instruction, kWide ? "gg" : "ff", values, &error);
  ASSERT_EQ(error, "");
  for (size_t i = 0; i < results.size(); ++i) {
    const T x = Value<T>(values[0][i]);
    const T r = Value<T>(results[i]);
    if (std::isnan(x) || x < 0) {
      ASSERT_TRUE(std::isnan(r));
    } else if (x == 0 || std::isinf(x)) {
      ASSERT_EQ(results[i], values[0][i]);
    } else {
      const Quad below = (static_cast<Quad>(r) + static_cast<Quad>(std::nextafter(r, T{0}))) / 2;
      const Quad above =
          (static_cast<Quad>(r) + static_cast<Quad>(std::nextafter(r, T{INFINITY}))) / 2;
      ASSERT_TRUE(below * below <= x && static_cast<Quad>(x) <= above * above) << x;
    }
  }
}

TEST(FloatTest, SquareRootsAreNearest) {
  CheckSqrt<float>("sqrt.rn.f32 d, a;");
  CheckSqrt<double>("sqrt.rn.f64 d, a;");
}

TEST(FloatTest, MinAndMaxOrderZerosAndSkipNan) {
  constexpr uint64_t kNan = 0x7fc00000;
  const struct {
    uint64_t a, b, min, max, min_nan;
  } rows[] = {
      {0x00000000, 0x80000000, 0x80000000, 0x00000000, 0x80000000},
      {0x80000000, 0x00000000, 0x80000000, 0x00000000, 0x80000000},
      {0x3f800000, kNan, 0x3f800000, 0x3f800000, 0x7fffffff},
      {kNan, 0xbf800000, 0xbf800000, 0xbf800000, 0x7fffffff},
      {kNan, kNan, 0x7fffffff, 0x7fffffff, 0x7fffffff},
      {0x00000001, 0x80000001, 0x80000001, 0x00000001, 0x80000001},
      {0x7f800000, 0x3f800000, 0x3f800000, 0x7f800000, 0x3f800000},
  };
  std::vector<std::vector<uint64_t>> values(2);
  for (const auto& row : rows) {
    values[0].push_back(row.a);
    values[1].push_back(row.b);
  }
  std::string error;
  const auto min = Evaluate("min.f32 d, a, b;", "fff", values, &error);
  const auto max = Evaluate("max.f32 d, a, b;", "fff", values, &error);
  const auto min_nan = Evaluate("min.NaN.f32 d, a, b;", "fff", values, &error);
  ASSERT_EQ(error, "");
  for (size_t i = 0; i < min.size(); ++i) {
    EXPECT_EQ(min[i], rows[i].min) << i;
    EXPECT_EQ(max[i], rows[i].max) << i;
    EXPECT_EQ(min_nan[i], rows[i].min_nan) << i;
  }
}

TEST(FloatTest, WithoutARoundingSumsOfProductsAreFused) {
  const std::vector<std::vector<uint64_t>> values(
      3, std::vector<uint64_t>(1, BitsOf<float>(1.0F + 0x1p-12F)));
  const float x = 1.0F + 0x1p-12F;
  const auto run = [&](const std::string& instructions) {
    std::string error;
    const auto results = Evaluate(".reg .f32 %t<2>; " + instructions, "ffff", values, &error);
    EXPECT_EQ(error, "");
    return Value<float>(results[0]);
  };
  volatile float product = x * x;
  const float apart = product - x;
  const float fused = std::fma(x, x, -x);
  ASSERT_NE(apart, fused);
  EXPECT_EQ(run("mul.f32 %t0, a, b; sub.f32 d, %t0, c;"), fused);
  EXPECT_EQ(run("mul.f32 %t0, a, b; sub.f32 d, c, %t0;"), -fused);
  EXPECT_EQ(run("mul.f32 %t0, a, b; neg.f32 %t1, c; add.f32 d, %t1, %t0;"), fused);
  EXPECT_EQ(run("mul.rn.f32 %t0, a, b; sub.rn.f32 d, %t0, c;"), apart);
  EXPECT_EQ(run("mul.rn.f32 %t0, a, b; sub.f32 d, %t0, c;"), apart);
  EXPECT_EQ(run("mul.f32 %t0, a, b; $join: sub.f32 d, %t0, c;"), apart);
  EXPECT_EQ(run("mul.f32 %t0, a, b; mov.f32 a, 0f00000000; sub.f32 d, %t0, c;"), apart);
}

TEST(FloatTest, FtzFlushesOperandsAndResults) {
  std::string error;
  // A subnormal operand, and a product of normals that is subnormal.
  const std::vector<std::vector<uint64_t>> values = {{0x00400000, 0x00800000, 0x80400000},
                                                     {0x3f800000, 0x3f000000, 0x3f800000}};
  const auto flushed = Evaluate("mul.rn.ftz.f32 d, a, b;", "fff", values, &error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(flushed, (std::vector<uint64_t>{0, 0, 0x80000000}));
  const auto kept = Evaluate("mul.rn.f32 d, a, b;", "fff", values, &error);
  EXPECT_EQ(kept, (std::vector<uint64_t>{0x00400000, 0x00400000, 0x80400000}));
}

TEST(FloatTest, ComparisonsKnowNan) {
  const std::vector<double> points = {-INFINITY, -1, -0.0, 0.0, 0.5, INFINITY, NAN};
  std::vector<std::vector<uint64_t>> values(2);
  for (const double a : points) {
    for (const double b : points) {
      values[0].push_back(std::bit_cast<uint32_t>(static_cast<float>(a)));
      values[1].push_back(std::bit_cast<uint32_t>(static_cast<float>(b)));
    }
  }
  const std::map<std::string, bool (*)(double, double)> ordered = {
      {"eq", [](double a, double b) { return a == b; }},
      {"lt", [](double a, double b) { return a < b; }},
      {"le", [](double a, double b) { return a <= b; }},
      {"gt", [](double a, double b) { return a > b; }},
      {"ge", [](double a, double b) { return a >= b; }},
      {"ne", [](double a, double b) { return a < b || a > b; }}};
  for (const auto& [name, holds] : ordered) {
    std::string error;
    const auto plain = Evaluate("setp." + name + ".f32 d, a, b;", "pff", values, &error);
    ASSERT_EQ(error, "");
    const auto or_nan = Evaluate("setp." + name + "u.f32 d, a, b;", "pff", values, &error);
    ASSERT_EQ(error, "");
    size_t i = 0;
    for (const double a : points) {
      for (const double b : points) {
        const bool unordered = std::isnan(a) || std::isnan(b);
        EXPECT_EQ(plain[i], static_cast<uint64_t>(holds(a, b))) << name << a << " " << b;
        EXPECT_EQ(or_nan[i], static_cast<uint64_t>(unordered || holds(a, b))) << name << a << b;
        ++i;
      }
    }
  }
}

}  // namespace
}  // namespace fakecuda
