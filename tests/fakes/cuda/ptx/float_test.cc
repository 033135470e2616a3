// f32, f64, f16 and bf16 arithmetic on edge values and random bits. The judge computes in 113-bit
// floats, rounded to odd, so that one rounding more gives the exact result's (Boldo and Melquiond,
// "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd"); half
// formats are rounded by looking at all of their values.
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <map>
#include <random>

#include "tests/fakes/cuda/ptx/run_ptx.h"

namespace fakecuda {
namespace {

using Quad = __float128;

// The result of an operation rounded to odd: toward zero, and where that is inexact with the last
// bit set.
template <class F>
Quad Odd(F operation) {
  std::feclearexcept(FE_ALL_EXCEPT);
  std::fesetround(FE_TOWARDZERO);
  volatile Quad result = operation();
  const bool inexact = std::fetestexcept(FE_INEXACT) != 0;
  std::fesetround(FE_TONEAREST);
  if (!inexact) return result;
  auto bits = std::bit_cast<unsigned __int128>(static_cast<Quad>(result));
  return std::bit_cast<Quad>(bits | 1);
}

template <class T>
T Exact(const std::string& op, T x, T y, T z) {
  volatile Quad a = x;
  volatile Quad b = y;
  volatile Quad c = z;
  if (op == "add") {
    if (x == 0 && y == 0) return x + y;
    return static_cast<T>(Odd([&] { return a + b; }));
  }
  if (op == "sub") return Exact<T>("add", x, -y, z);
  if (op == "mul") return static_cast<T>(Odd([&] { return a * b; }));
  if (op == "div") return static_cast<T>(Odd([&] { return a / b; }));
  // Products of two T are exact here.
  if (x * y == 0 && z == 0) return x * y + z;
  volatile Quad product = a * b;
  const Quad sum = Odd([&] { return product + c; });
  if (sum == 0) return 0;  // a difference of equal numbers, to nearest
  return static_cast<T>(sum);
}

std::vector<uint64_t> FloatBits(bool wide, size_t count) {
  std::mt19937_64 random(11);
  std::vector<uint64_t> edges;
  const int mantissa = wide ? 52 : 23;
  const int top = wide ? 63 : 31;
  const uint64_t infinity = wide ? uint64_t{0x7ff} << 52 : uint64_t{0xff} << 23;
  const uint64_t one = wide ? uint64_t{0x3ff} << 52 : uint64_t{0x7f} << 23;
  for (const uint64_t v : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << mantissa) - 1,
                           uint64_t{1} << mantissa, one, one + 1, one - 1, infinity - 1, infinity,
                           infinity + 1, infinity | uint64_t{1} << (mantissa - 1)}) {
    edges.push_back(v);
    edges.push_back(v | uint64_t{1} << top);
  }
  std::vector<uint64_t> values;
  while (values.size() < count) {
    const uint64_t r = random();
    // Close exponents, so that sums cancel and round.
    const uint64_t near =
        one + ((r >> 4) % 7) * (uint64_t{1} << mantissa) + random() % (uint64_t{1} << mantissa);
    const uint64_t any = wide ? random() : random() & 0xffffffff;
    values.push_back(r % 3 == 0 ? edges[random() % edges.size()] : r % 3 == 1 ? near : any);
  }
  return values;
}

template <class T>
T Value(uint64_t bits) {
  if constexpr (sizeof(T) == 4) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if constexpr (sizeof(T) == 8) return std::bit_cast<double>(bits);
}
template <class T>
uint64_t BitsOf(T x) {
  if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(x);
  if constexpr (sizeof(T) == 8) return std::bit_cast<uint64_t>(x);
}

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

// A 16-bit format by all of its finite values.
class HalfTable {
 public:
  explicit HalfTable(bool brain) : brain_(brain) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const double v = ValueOf(bits);
      if (std::isfinite(v) && bits != 0x8000) by_value_[v] = bits;
    }
  }
  double ValueOf(uint64_t bits) const {
    if (brain_) return std::bit_cast<float>(static_cast<uint32_t>(bits << 16));
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = static_cast<double>(bits & 1023) / 1024;
    if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
    return sign *
           (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15));
  }
  // The nearest value's bits, ties to even; beyond half a unit above the largest, infinity.
  uint64_t Nearest(Quad x, bool negative_zero) const {
    if (x != x) return 0x7fff;
    if (x == 0) return negative_zero ? 0x8000 : 0;
    const auto largest = by_value_.rbegin();
    const auto before = std::next(largest);
    const Quad limit =
        static_cast<Quad>(largest->first) + (static_cast<Quad>(largest->first) - before->first) / 2;
    const Quad size = x < 0 ? -x : x;
    if (size >= limit) return (x < 0 ? 0x8000u : 0u) | (largest->second + 1);
    if (size > largest->first) return (x < 0 ? 0x8000u : 0u) | largest->second;
    const auto above = by_value_.lower_bound(static_cast<double>(size));
    auto high = above;
    while (high != by_value_.begin() && static_cast<Quad>(std::prev(high)->first) >= size) --high;
    while (static_cast<Quad>(high->first) < size) ++high;
    uint64_t bits = high->second;
    if (static_cast<Quad>(high->first) != size) {
      const auto low = std::prev(high);
      const Quad up = static_cast<Quad>(high->first) - size;
      const Quad down = size - low->first;
      bits = down < up                ? low->second
             : up < down              ? high->second
             : (low->second & 1) == 0 ? low->second
                                      : high->second;
    }
    return (x < 0 ? 0x8000u : 0u) | bits;
  }

 private:
  bool brain_;
  std::map<double, uint64_t> by_value_;
};

TEST(HalfTest, ArithmeticRoundsOnce) {
  for (const bool brain : {false, true}) {
    const HalfTable table(brain);
    const std::string type = brain ? "bf16" : "f16";
    std::mt19937_64 random(5);
    std::vector<std::vector<uint64_t>> values(3);
    for (int i = 0; i < 20000; ++i) {
      for (auto& v : values) v.push_back(random() & 0xffff);
      if (i % 2 == 0) values[1].back() = (values[0].back() & 0xfc00) | (random() & 0x83ff);
    }
    const std::map<std::string, Quad (*)(Quad, Quad, Quad)> ops = {
        {"add.rn." + type + " d, a, b;", [](Quad a, Quad b, Quad) { return a + b; }},
        {"sub.rn." + type + " d, a, b;", [](Quad a, Quad b, Quad) { return a - b; }},
        {"mul.rn." + type + " d, a, b;", [](Quad a, Quad b, Quad) { return a * b; }},
        {"fma.rn." + type + " d, a, b, c;", [](Quad a, Quad b, Quad c) { return a * b + c; }}};
    for (const auto& [instruction, op] : ops) {
      SCOPED_TRACE(instruction);
      std::string error;
      const bool three = instruction.starts_with("fma");
      auto operands = values;
      if (!three) operands.pop_back();
      const auto results = Evaluate(instruction, three ? "hhhh" : "hhh", operands, &error);
      ASSERT_EQ(error, "");
      for (size_t i = 0; i < results.size(); ++i) {
        const double a = table.ValueOf(values[0][i]);
        const double b = table.ValueOf(values[1][i]);
        const double c = table.ValueOf(values[2][i]);
        const Quad exact = Odd([&] { return op(a, b, c); });
        const uint64_t expected = table.Nearest(exact, std::signbit(static_cast<double>(exact)));
        if (exact == 0) {
          EXPECT_EQ(results[i] & 0x7fff, 0u);
          continue;
        }
        ASSERT_EQ(results[i], expected) << a << " " << b << " " << c;
      }
    }
  }
}

TEST(HalfTest, PairsAreTwoOfTheSame) {
  std::mt19937_64 random(9);
  std::vector<std::vector<uint64_t>> low(3);
  std::vector<std::vector<uint64_t>> high(3);
  std::vector<std::vector<uint64_t>> both(3);
  for (int i = 0; i < 1000; ++i) {
    for (size_t k = 0; k < 3; ++k) {
      low[k].push_back(random() & 0xffff);
      high[k].push_back(random() & 0xffff);
      both[k].push_back(high[k].back() << 16 | low[k].back());
    }
  }
  for (const std::string type : {"f16", "bf16"}) {
    std::string error;
    const auto pairs = Evaluate("fma.rn." + type + "x2 d, a, b, c;", "wwww", both, &error);
    ASSERT_EQ(error, "");
    const auto first = Evaluate("fma.rn." + type + " d, a, b, c;", "hhhh", low, &error);
    const auto second = Evaluate("fma.rn." + type + " d, a, b, c;", "hhhh", high, &error);
    ASSERT_EQ(error, "");
    for (size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_EQ(pairs[i], second[i] << 16 | first[i]);
    }
  }
}

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
