// SIN, EXP2, LOG2 and POW as compiled, on dense and random arguments, against long double, in ulp
// of the true value.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "tests/kernels/kernel_fixture.h"

namespace telegrad {
namespace {

uint64_t Seed() {
  static const uint64_t seed = std::random_device{}();
  return seed;
}

// The distance of `got` from the true value in units of the last place that the format has there.
template <typename T>
double UlpError(T got, long double want) {
  const T rounded = static_cast<T>(want);
  constexpr double kWrong = 1e9;
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) == std::isnan(got) ? 0 : kWrong;
  if (std::isinf(rounded) || std::isinf(got)) {
    if (rounded == got) return 0;
    // Next to the overflow threshold the largest finite value is as good.
    constexpr T kMax = std::numeric_limits<T>::max();
    return std::fabs(rounded) >= kMax && std::fabs(got) >= kMax ? 1 : kWrong;
  }
  if (want == 0 || got == 0) {
    if (want == 0) return got == 0 && std::signbit(got) == std::signbit(want) ? 0 : kWrong;
  }
  int exponent;
  std::frexp(want, &exponent);
  using Limits = std::numeric_limits<T>;
  const int ulp = std::max(exponent, Limits::min_exponent) - Limits::digits;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) /
                             std::ldexp(1.0L, ulp));
}

template <typename T>
struct Argument {
  T x, y;
};

// Compares f(x, y) on all arguments with `op`'s compiled kernel on the host; the nodes it takes
// stay below a limit, since every kernel that uses the function pays for them.
template <typename T>
void Check(Op op, const std::vector<Argument<T>>& arguments, long double (*f)(T, T), double limit,
           int max_nodes) {
  constexpr DType kType = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
  constexpr int64_t kLanes = 8;
  const auto n = static_cast<int64_t>(arguments.size()) / kLanes * kLanes;
  const Target target = HostTarget(2);
  ProgramBuilder b("function");
  const UOp out = b.Argument(kType, n), xs = b.Argument(kType, n), ys = b.Argument(kType, n);
  const UOp i = b.Open(AxisType::kThread, n / kLanes);
  const UOp at = b.Do(Op::kAdd, {b.Do(Op::kMul, {i, b.Index(kLanes)}), b.Iota(kLanes)});
  const UOp x = b.Load(xs, at);
  int nodes = 0;
  const UOp value = Info(op).min_src == 1
                        ? b.Lowered(target, op, kType, {x}, &nodes)
                        : b.Lowered(target, op, kType, {x, b.Load(ys, at)}, &nodes);
  b.Store(out, at, value);
  b.Close(i);
  EXPECT_LE(nodes, max_nodes);
  std::vector<T> first, second;
  for (int64_t k = 0; k < n; ++k) {
    first.push_back(arguments[k].x);
    second.push_back(arguments[k].y);
  }
  const auto memory = Upload(std::vector<T>(n));
  ASSERT_EQ(RunOnce(b.Build(), {memory, Upload(first), Upload(second)}, target), absl::OkStatus());
  const auto got = Download<T>(*memory);
  double worst = 0;
  int64_t worst_at = 0;
  for (int64_t k = 0; k < n; ++k) {
    const double error = UlpError(got[k], f(first[k], second[k]));
    if (error > worst) {
      worst = error;
      worst_at = k;
    }
  }
  testing::Test::RecordProperty("worst_ulp", std::to_string(worst));
  testing::Test::RecordProperty("nodes", nodes);
  EXPECT_LE(worst, limit) << Name(op) << " " << Name(kType) << " of " << first[worst_at] << ", "
                          << second[worst_at] << ": " << got[worst_at] << ", seed " << Seed();
}

template <typename T>
T FromBits(uint64_t bits) {
  if constexpr (sizeof(T) == 4) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if constexpr (sizeof(T) == 8) return std::bit_cast<double>(bits);
}

template <typename T>
const std::vector<T> kEdges = {T(0),
                               T(-0.0),
                               T(1),
                               T(-1),
                               T(0.5),
                               T(-0.5),
                               T(2),
                               T(-2),
                               T(3),
                               T(-3),
                               T(2.5),
                               T(-2.5),
                               T(1e-30),
                               T(-1e-30),
                               T(1e30),
                               T(-1e30),
                               T(0x1p53),
                               T(0x1p53 - 1),
                               std::nextafter(T(1), T(0)),
                               std::nextafter(T(1), T(2)),
                               -std::nextafter(T(1), T(2)),
                               std::numeric_limits<T>::max(),
                               std::numeric_limits<T>::lowest(),
                               std::numeric_limits<T>::min(),
                               std::numeric_limits<T>::denorm_min(),
                               -std::numeric_limits<T>::denorm_min(),
                               std::numeric_limits<T>::infinity(),
                               -std::numeric_limits<T>::infinity(),
                               std::numeric_limits<T>::quiet_NaN()};

template <typename T>
std::vector<Argument<T>> Unary(int per_exponent, int spread) {
  std::mt19937_64 random(Seed());
  std::vector<Argument<T>> out;
  for (T x : kEdges<T>) out.push_back({x, 0});
  // All exponents, random mantissas.
  const int exponents = sizeof(T) == 4 ? 256 : 2048, mantissa = sizeof(T) == 4 ? 23 : 52;
  for (int e = 0; e < exponents; ++e) {
    for (int i = 0; i < per_exponent; ++i) {
      const uint64_t bits = static_cast<uint64_t>(e) << mantissa |
                            (random() & ((uint64_t{1} << mantissa) - 1)) | random() << 63 |
                            (sizeof(T) == 4 ? random() >> 63 << 31 : 0);
      out.push_back({FromBits<T>(bits), 0});
    }
  }
  // Where the values are neither trivial nor out of range.
  std::uniform_real_distribution<double> unit(-1, 1);
  const double limit = sizeof(T) == 4 ? 151 : 1076;
  for (int i = 0; i < spread; ++i) {
    out.push_back({static_cast<T>(unit(random) * limit), 0});
    out.push_back({static_cast<T>(1 + unit(random) / 2), 0});
    out.push_back(
        {static_cast<T>(1 + std::ldexp(unit(random), -static_cast<int>(random() % 50))), 0});
    // Next to a multiple of pi/2.
    const auto k = static_cast<long double>(random() >> (random() % 60));
    const auto near = static_cast<T>(k * 1.5707963267948966192313216916397514L);
    out.push_back({near, 0});
    out.push_back({std::nextafter(near, T(0)), 0});
  }
  return out;
}

TEST(Functions, SinF32) {
  Check<float>(
      Op::kSin, Unary<float>(8000, 100'000), [](float x, float) { return sinl(x); }, 2, 150);
}
TEST(Functions, SinF64) {
  std::vector<Argument<double>> x = Unary<double>(300, 60'000);
  // The f64 that is closest to a multiple of pi/2 (Muller, "Elementary Functions").
  x.push_back({6381956970095103 * 0x1p797, 0});
  x.push_back({-6381956970095103 * 0x1p797, 0});
  x.resize(x.size() + 6, {1, 0});
  Check<double>(Op::kSin, x, [](double x, double) { return sinl(x); }, 2, 260);
}
TEST(Functions, Exp2F32) {
  Check<float>(
      Op::kExp2, Unary<float>(2000, 200'000), [](float x, float) { return exp2l(x); }, 2, 60);
}
TEST(Functions, Exp2F64) {
  Check<double>(
      Op::kExp2, Unary<double>(100, 100'000), [](double x, double) { return exp2l(x); }, 2, 70);
}
TEST(Functions, Log2F32) {
  Check<float>(
      Op::kLog2, Unary<float>(2000, 200'000), [](float x, float) { return log2l(x); }, 2, 80);
}
TEST(Functions, Log2F64) {
  Check<double>(
      Op::kLog2, Unary<double>(100, 100'000), [](double x, double) { return log2l(x); }, 2, 90);
}

template <typename T>
std::vector<Argument<T>> Pairs(int count) {
  std::mt19937_64 random(Seed());
  std::vector<Argument<T>> out;
  for (T x : kEdges<T>) {
    for (T y : kEdges<T>) out.push_back({x, y});
  }
  std::uniform_real_distribution<double> unit(-1, 1);
  const double top = sizeof(T) == 4 ? 150 : 1076;
  for (int i = 0; i < count; ++i) {
    out.push_back({FromBits<T>(random()), FromBits<T>(random())});
    // Results all over the range: the exponent of the result is chosen, and y by it.
    const T x = std::fabs(FromBits<T>(random()));
    const T near_one =
        static_cast<T>(1 + std::ldexp(unit(random), -static_cast<int>(random() % 50)));
    const double exponent = unit(random) * top;
    for (T base : {x, near_one}) {
      const double log = std::log2(static_cast<double>(base));
      if (std::isfinite(log) && log != 0) out.push_back({base, static_cast<T>(exponent / log)});
    }
    // Integer powers of small numbers of both signs.
    out.push_back({static_cast<T>(unit(random) * 20), static_cast<T>(random() % 61) - 30});
  }
  while (out.size() % 8 != 0) out.push_back({1, 1});
  return out;
}

// C's powl has the special cases that POW has.
TEST(Functions, PowF32) {
  Check<float>(
      Op::kPow, Pairs<float>(200'000), [](float x, float y) { return powl(x, y); }, 4, 200);
}
TEST(Functions, PowF64) {
  Check<double>(
      Op::kPow, Pairs<double>(150'000), [](double x, double y) { return powl(x, y); }, 4, 350);
}

// Random123's known answers for threefry2x32 with 20 rounds (kat_vectors).
TEST(Functions, Threefry) {
  const std::vector<uint64_t> counter = {0, ~uint64_t{0}, 0x85a308d3243f6a88, 0, 0, 0, 0, 0};
  const std::vector<uint64_t> key = {0, ~uint64_t{0}, 0x0370734413198a2e, 0, 0, 0, 0, 0};
  const std::vector<uint64_t> expected = {0x99ba4efe6b200159, 0xbb002be71cb996fc,
                                          0x483df7a0c4923a9c};
  const Target target = HostTarget(1);
  ProgramBuilder b("threefry");
  const auto n = static_cast<int64_t>(counter.size());
  const UOp out = b.Argument(DType::kUInt64, n), x = b.Argument(DType::kUInt64, n),
            y = b.Argument(DType::kUInt64, n);
  const UOp at = b.Iota(n);
  b.Store(out, at,
          b.Lowered(target, Op::kThreefry, DType::kUInt64, {b.Load(x, at), b.Load(y, at)}));
  const auto memory = Upload(std::vector<uint64_t>(n));
  ASSERT_EQ(RunOnce(b.Build(), {memory, Upload(counter), Upload(key)}, target), absl::OkStatus());
  const auto got = Download<uint64_t>(*memory);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(got[i], expected[i]) << std::hex << got[i];
}

}  // namespace
}  // namespace telegrad
