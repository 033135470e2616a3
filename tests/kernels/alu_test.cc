// The elementwise ops that the target computes itself, but casts (see dtypes_test.cc), on edge
// values and random ones, as scalars and as vectors, on each target, against the definitions of
// ops.def spelled out in plain C++.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <tuple>
#include <type_traits>

#include "tests/kernels/kernel_fixture.h"

namespace telegrad {
namespace {

template <typename T>
constexpr DType kDType = DType::kVoid;
template <>
constexpr DType kDType<bool> = DType::kBool;
template <>
constexpr DType kDType<int8_t> = DType::kInt8;
template <>
constexpr DType kDType<int16_t> = DType::kInt16;
template <>
constexpr DType kDType<int32_t> = DType::kInt32;
template <>
constexpr DType kDType<int64_t> = DType::kInt64;
template <>
constexpr DType kDType<uint8_t> = DType::kUInt8;
template <>
constexpr DType kDType<uint16_t> = DType::kUInt16;
template <>
constexpr DType kDType<uint32_t> = DType::kUInt32;
template <>
constexpr DType kDType<uint64_t> = DType::kUInt64;
template <>
constexpr DType kDType<float> = DType::kFloat32;
template <>
constexpr DType kDType<double> = DType::kFloat64;

// std::vector<bool> is no array.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

constexpr int64_t kLanes = 8;

template <typename T>
std::vector<Stored<T>> EdgeValues() {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return {0, 1};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {T(0),
            T(-0.0),
            T(1),
            T(-1),
            T(0.5),
            T(-0.5),
            T(2.5),
            T(-2.5),
            T(1e-3),
            T(300.7),
            T(-129.9),
            T(65536.5),
            T(3e9),
            T(-3e9),
            T(1e19),
            T(-1e19),
            Limits::max(),
            Limits::lowest(),
            Limits::min(),
            Limits::denorm_min(),
            Limits::infinity(),
            -Limits::infinity(),
            Limits::quiet_NaN(),
            T(9223372036854775808.0)};
  } else {
    return {T(0),
            T(1),
            T(2),
            T(3),
            T(5),
            T(7),
            T(8),
            T(31),
            T(63),
            T(64),
            T(100),
            T(-1),
            T(-2),
            T(-3),
            T(-7),
            Limits::max(),
            Limits::min(),
            T(Limits::max() - 1),
            T(Limits::min() + 1)};
  }
}

template <typename T>
Stored<T> RandomValue(std::mt19937_64& random) {
  if constexpr (std::is_same_v<T, bool>) {
    return random() & 1;
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::ldexp(static_cast<T>(static_cast<int64_t>(random())),
                      -40 - static_cast<int>(random() % 40));
  } else {
    return static_cast<T>(random() >> (random() % 64));
  }
}

template <typename T>
bool SameValue(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b && std::signbit(a) == std::signbit(b);
  } else {
    return a == b;
  }
}

// Runs `op` over all of `sources` and compares with `expected`, scalar and vector.
template <typename To, typename... From>
void Check(Op op, const std::vector<Stored<To>>& expected,
           const std::vector<Stored<From>>&... sources) {
  const auto n = static_cast<int64_t>(expected.size());
  ASSERT_EQ(n % kLanes, 0);
  for (bool vector : {false, true}) {
    ProgramBuilder b("alu");
    const UOp out = b.Argument(kDType<To>, n);
    const std::vector<UOp> arguments = {b.Argument(kDType<From>, n)...};
    const int64_t step = vector ? kLanes : 1;
    const UOp i = b.Open(AxisType::kThread, n / step);
    UOp at = i;
    if (vector) at = b.Do(Op::kAdd, {b.Do(Op::kMul, {i, b.Index(step)}), b.Iota(step)});
    std::vector<UOp> x;
    for (UOp argument : arguments) x.push_back(b.Load(argument, at));
    const UOp y = b.Put(b.graph().Make(op, kDType<To>, x));
    ASSERT_TRUE(y.valid());
    b.Store(out, at, y);
    b.Close(i);
    const std::vector<std::shared_ptr<Memory>> inputs = {Upload(sources)...};
    for (const auto& [name, target] : TestTargets()) {
      const auto memory = Upload(std::vector<Stored<To>>(n, Stored<To>(77)));
      std::vector<std::shared_ptr<Memory>> memories = {memory};
      memories.insert(memories.end(), inputs.begin(), inputs.end());
      ASSERT_EQ(RunOnce(b.Build(), memories, target), absl::OkStatus());
      const auto actual = Download<Stored<To>>(*memory);
      for (int64_t k = 0; k < n; ++k) {
        ASSERT_TRUE(SameValue(actual[k], expected[k]))
            << Name(op) << " to " << Name(kDType<To>) << (vector ? " vector" : " scalar") << " on "
            << name << ": got " << +actual[k] << ", expected " << +expected[k] << " of "
            << testing::PrintToString(std::make_tuple(+sources[k]...));
      }
    }
  }
}

uint64_t Seed() {
  static const uint64_t seed = std::random_device{}();
  return seed;
}

template <typename To, typename T>
void Unary(Op op, const std::function<To(T)>& f) {
  SCOPED_TRACE(testing::Message() << "seed " << Seed());
  std::mt19937_64 random(Seed());
  std::vector<Stored<T>> x = EdgeValues<T>();
  while (x.size() < 64 || x.size() % kLanes != 0) x.push_back(RandomValue<T>(random));
  std::vector<Stored<To>> expected;
  for (auto v : x) expected.push_back(f(v));
  Check<To, T>(op, expected, x);
}

template <typename To, typename T>
void Binary(Op op, const std::function<To(T, T)>& f) {
  SCOPED_TRACE(testing::Message() << "seed " << Seed());
  std::mt19937_64 random(Seed());
  std::vector<Stored<T>> x, y;
  for (auto a : EdgeValues<T>()) {
    for (auto b : EdgeValues<T>()) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  for (int i = 0; i < 100 || x.size() % kLanes != 0; ++i) {
    x.push_back(RandomValue<T>(random));
    y.push_back(RandomValue<T>(random));
  }
  std::vector<Stored<To>> expected;
  for (size_t i = 0; i < x.size(); ++i) expected.push_back(f(x[i], y[i]));
  Check<To, T, T>(op, expected, x, y);
}

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

template <typename T>
void IntegerOps() {
  constexpr int kBits = sizeof(T) * 8;
  // In 128 bits nothing overflows, so these are the definitions themselves, then wrapped.
  using Wide = __int128;
  const auto floor_div = [](Wide a, Wide b) -> Wide {
    const Wide q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
  };
  const auto outside = [](T y) { return y < 0 || static_cast<Wide>(y) >= kBits; };
  Binary<T, T>(Op::kAdd, [](T a, T b) { return static_cast<T>(Wide{a} + b); });
  Binary<T, T>(Op::kSub, [](T a, T b) { return static_cast<T>(Wide{a} - b); });
  Binary<T, T>(Op::kMul, [](T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  });
  Binary<T, T>(Op::kFloorDiv,
               [=](T a, T b) { return b == 0 ? T(0) : static_cast<T>(floor_div(a, b)); });
  Binary<T, T>(Op::kFloorMod, [=](T a, T b) {
    return b == 0 ? T(0) : static_cast<T>(Wide{a} - floor_div(a, b) * b);
  });
  Binary<T, T>(Op::kCDiv, [](T a, T b) { return b == 0 ? T(0) : static_cast<T>(Wide{a} / b); });
  Binary<T, T>(Op::kCMod, [](T a, T b) { return b == 0 ? T(0) : static_cast<T>(Wide{a} % b); });
  Binary<T, T>(Op::kMax, [](T a, T b) { return std::max(a, b); });
  Binary<T, T>(Op::kAnd, [](T a, T b) { return static_cast<T>(a & b); });
  Binary<T, T>(Op::kOr, [](T a, T b) { return static_cast<T>(a | b); });
  Binary<T, T>(Op::kXor, [](T a, T b) { return static_cast<T>(a ^ b); });
  Binary<T, T>(Op::kShl, [=](T a, T b) {
    return outside(b) ? T(0) : static_cast<T>(static_cast<Unsigned<T>>(a) * (Wide{1} << b));
  });
  Binary<T, T>(Op::kShr, [=](T a, T b) {
    if (outside(b)) return a < 0 ? T(-1) : T(0);
    return static_cast<T>(floor_div(a, Wide{1} << b));
  });
  Binary<bool, T>(Op::kCmpLt, [](T a, T b) { return a < b; });
  Binary<bool, T>(Op::kCmpEq, [](T a, T b) { return a == b; });
  Binary<bool, T>(Op::kCmpNe, [](T a, T b) { return a != b; });
  Unary<T, T>(Op::kNeg, [](T a) { return static_cast<T>(-Wide{a}); });
}

TEST(Alu, Int8) { IntegerOps<int8_t>(); }
TEST(Alu, Int16) { IntegerOps<int16_t>(); }
TEST(Alu, Int32) { IntegerOps<int32_t>(); }
TEST(Alu, Int64) { IntegerOps<int64_t>(); }
TEST(Alu, UInt8) { IntegerOps<uint8_t>(); }
TEST(Alu, UInt16) { IntegerOps<uint16_t>(); }
TEST(Alu, UInt32) { IntegerOps<uint32_t>(); }
TEST(Alu, UInt64) { IntegerOps<uint64_t>(); }

TEST(Alu, Bool) {
  Binary<bool, bool>(Op::kAnd, [](bool a, bool b) { return a && b; });
  Binary<bool, bool>(Op::kOr, [](bool a, bool b) { return a || b; });
  Binary<bool, bool>(Op::kXor, [](bool a, bool b) { return a != b; });
  Binary<bool, bool>(Op::kCmpLt, [](bool a, bool b) { return !a && b; });
  Binary<bool, bool>(Op::kCmpEq, [](bool a, bool b) { return a == b; });
  Binary<bool, bool>(Op::kCmpNe, [](bool a, bool b) { return a != b; });
}

template <typename T>
T MaxOf(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <typename T>
void FloatOps() {
  Binary<T, T>(Op::kAdd, [](T a, T b) { return a + b; });
  Binary<T, T>(Op::kSub, [](T a, T b) { return a - b; });
  Binary<T, T>(Op::kMul, [](T a, T b) { return a * b; });
  Binary<T, T>(Op::kFDiv, [](T a, T b) { return a / b; });
  Binary<T, T>(Op::kMax, MaxOf<T>);
  Binary<bool, T>(Op::kCmpLt, [](T a, T b) { return a < b; });
  Binary<bool, T>(Op::kCmpEq, [](T a, T b) { return a == b; });
  Binary<bool, T>(Op::kCmpNe, [](T a, T b) { return a != b; });
  Unary<T, T>(Op::kNeg, [](T a) { return -a; });
  Unary<T, T>(Op::kSqrt, [](T a) { return std::sqrt(a); });
  Unary<T, T>(Op::kRecip, [](T a) { return T(1) / a; });
  Unary<T, T>(Op::kTrunc, [](T a) { return std::trunc(a); });
  Unary<T, T>(Op::kFloor, [](T a) { return std::floor(a); });
}

TEST(Alu, Float32) { FloatOps<float>(); }
TEST(Alu, Float64) { FloatOps<double>(); }

TEST(Alu, WhereAndMulAcc) {
  std::mt19937_64 random(Seed());
  SCOPED_TRACE(testing::Message() << "seed " << Seed());
  constexpr int kSize = 256;
  std::vector<uint8_t> condition(kSize);
  std::vector<float> x(kSize), y(kSize), z(kSize), where(kSize), fma(kSize);
  std::vector<int32_t> a(kSize), b(kSize), c(kSize), mulacc(kSize);
  for (int i = 0; i < kSize; ++i) {
    condition[i] = random() & 1;
    x[i] = RandomValue<float>(random);
    y[i] = RandomValue<float>(random);
    // Cancels almost all of the product, so that a second rounding shows.
    z[i] = -(x[i] * y[i]);
    where[i] = condition[i] != 0 ? x[i] : y[i];
    fma[i] = std::fma(x[i], y[i], z[i]);
    a[i] = RandomValue<int32_t>(random);
    b[i] = RandomValue<int32_t>(random);
    c[i] = RandomValue<int32_t>(random);
    mulacc[i] = static_cast<int32_t>(static_cast<uint32_t>(a[i]) * static_cast<uint32_t>(b[i]) +
                                     static_cast<uint32_t>(c[i]));
  }
  Check<float, bool, float, float>(Op::kWhere, where, condition, x, y);
  Check<float, float, float, float>(Op::kMulAcc, fma, x, y, z);
  Check<int32_t, int32_t, int32_t, int32_t>(Op::kMulAcc, mulacc, a, b, c);
}

// Division and shifts whose operands are known keep their meaning in the shorter forms.
TEST(Alu, KnownOperandsTakeShorterForms) {
  const auto floor_div = [](int64_t a, int64_t b) {
    const int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
  };
  std::vector<int64_t> x;
  for (int64_t v = -130; v < 134; ++v) x.push_back(v);
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t divisor : {1, 2, 3, 7, 8, 64, -1, -2, -3, -8}) {
    for (bool non_negative : {false, true}) {
      ProgramBuilder b("divide");
      const UOp div = b.Argument(DType::kInt64, n), mod = b.Argument(DType::kInt64, n);
      const UOp in = b.Argument(DType::kInt64, n);
      const UOp i = b.Open(AxisType::kLoop, n);
      // The counter is known to be at least 0, a loaded value is not.
      const UOp value = non_negative ? i : b.Load(in, i);
      b.Store(div, i, b.Do(Op::kFloorDiv, {value, b.Index(divisor)}));
      b.Store(mod, i, b.Do(Op::kFloorMod, {value, b.Index(divisor)}));
      b.Close(i);
      const auto d = Upload(std::vector<int64_t>(n)), m = Upload(std::vector<int64_t>(n));
      ASSERT_EQ(RunOnce(b.Build(), {d, m, Upload(x)}, HostTarget(1)), absl::OkStatus());
      const auto divs = Download<int64_t>(*d), mods = Download<int64_t>(*m);
      for (int64_t k = 0; k < n; ++k) {
        const int64_t v = non_negative ? k : x[k];
        ASSERT_EQ(divs[k], floor_div(v, divisor)) << v << " / " << divisor;
        ASSERT_EQ(mods[k], v - floor_div(v, divisor) * divisor) << v << " % " << divisor;
      }
    }
  }
}

}  // namespace
}  // namespace telegrad
