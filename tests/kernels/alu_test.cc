// The elementwise ops that the target computes itself, but casts (see dtypes_test.cc), on edge
// values and random ones, as scalars and as vectors, on each target, against the definitions of
// ops.def spelled out in plain C++.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <type_traits>

#include "tests/kernels/alu_kernel.h"

namespace telegrad {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

template <typename T>
void IntegerOps() {
  TypeOps<T> ops;
  constexpr int kBits = sizeof(T) * 8;
  // In 128 bits nothing overflows, so these are the definitions themselves, then wrapped.
  using Wide = __int128;
  const auto floor_div = [](Wide a, Wide b) -> Wide {
    const Wide q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
  };
  const auto outside = [](T y) { return y < 0 || static_cast<Wide>(y) >= kBits; };
  ops.template Binary<T>(Op::kAdd, [](T a, T b) { return static_cast<T>(Wide{a} + b); });
  ops.template Binary<T>(Op::kSub, [](T a, T b) { return static_cast<T>(Wide{a} - b); });
  ops.template Binary<T>(Op::kMul, [](T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  });
  ops.template Binary<T>(Op::kFloorDiv,
                         [=](T a, T b) { return b == 0 ? T(0) : static_cast<T>(floor_div(a, b)); });
  ops.template Binary<T>(Op::kFloorMod, [=](T a, T b) {
    return b == 0 ? T(0) : static_cast<T>(Wide{a} - floor_div(a, b) * b);
  });
  ops.template Binary<T>(Op::kCDiv,
                         [](T a, T b) { return b == 0 ? T(0) : static_cast<T>(Wide{a} / b); });
  ops.template Binary<T>(Op::kCMod,
                         [](T a, T b) { return b == 0 ? T(0) : static_cast<T>(Wide{a} % b); });
  ops.template Binary<T>(Op::kMax, [](T a, T b) { return std::max(a, b); });
  ops.template Binary<T>(Op::kAnd, [](T a, T b) { return static_cast<T>(a & b); });
  ops.template Binary<T>(Op::kOr, [](T a, T b) { return static_cast<T>(a | b); });
  ops.template Binary<T>(Op::kXor, [](T a, T b) { return static_cast<T>(a ^ b); });
  ops.template Binary<T>(Op::kShl, [=](T a, T b) {
    return outside(b) ? T(0) : static_cast<T>(static_cast<Unsigned<T>>(a) * (Wide{1} << b));
  });
  ops.template Binary<T>(Op::kShr, [=](T a, T b) {
    if (outside(b)) return a < 0 ? T(-1) : T(0);
    return static_cast<T>(floor_div(a, Wide{1} << b));
  });
  ops.template Binary<bool>(Op::kCmpLt, [](T a, T b) { return a < b; });
  ops.template Binary<bool>(Op::kCmpEq, [](T a, T b) { return a == b; });
  ops.template Binary<bool>(Op::kCmpNe, [](T a, T b) { return a != b; });
  ops.template Unary<T>(Op::kNeg, [](T a) { return static_cast<T>(-Wide{a}); });
  ops.Run();
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
  TypeOps<bool> ops;
  ops.Binary<bool>(Op::kAnd, [](bool a, bool b) { return a && b; });
  ops.Binary<bool>(Op::kOr, [](bool a, bool b) { return a || b; });
  ops.Binary<bool>(Op::kXor, [](bool a, bool b) { return a != b; });
  ops.Binary<bool>(Op::kCmpLt, [](bool a, bool b) { return !a && b; });
  ops.Binary<bool>(Op::kCmpEq, [](bool a, bool b) { return a == b; });
  ops.Binary<bool>(Op::kCmpNe, [](bool a, bool b) { return a != b; });
  ops.Run();
}

template <typename T>
T MaxOf(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <typename T>
void FloatOps() {
  TypeOps<T> ops;
  ops.template Binary<T>(Op::kAdd, [](T a, T b) { return a + b; });
  ops.template Binary<T>(Op::kSub, [](T a, T b) { return a - b; });
  ops.template Binary<T>(Op::kMul, [](T a, T b) { return a * b; });
  ops.template Binary<T>(Op::kFDiv, [](T a, T b) { return a / b; });
  ops.template Binary<T>(Op::kMax, MaxOf<T>);
  ops.template Binary<bool>(Op::kCmpLt, [](T a, T b) { return a < b; });
  ops.template Binary<bool>(Op::kCmpEq, [](T a, T b) { return a == b; });
  ops.template Binary<bool>(Op::kCmpNe, [](T a, T b) { return a != b; });
  ops.template Unary<T>(Op::kNeg, [](T a) { return -a; });
  ops.template Unary<T>(Op::kSqrt, [](T a) { return std::sqrt(a); });
  ops.template Unary<T>(Op::kRecip, [](T a) { return T(1) / a; });
  ops.template Unary<T>(Op::kTrunc, [](T a) { return std::trunc(a); });
  ops.template Unary<T>(Op::kFloor, [](T a) { return std::floor(a); });
  ops.Run();
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
  AluKernel kernel(kSize);
  const int first = kernel.Column<bool>(condition);
  const int floats[] = {kernel.Column<float>(x), kernel.Column<float>(y), kernel.Column<float>(z)};
  const int ints[] = {kernel.Column<int32_t>(a), kernel.Column<int32_t>(b),
                      kernel.Column<int32_t>(c)};
  kernel.Add<float>(Op::kWhere, {first, floats[0], floats[1]}, where);
  kernel.Add<float>(Op::kMulAcc, {floats[0], floats[1], floats[2]}, fma);
  kernel.Add<int32_t>(Op::kMulAcc, {ints[0], ints[1], ints[2]}, mulacc);
  kernel.Run();
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
