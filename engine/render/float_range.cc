// A selection by x < y gives x only if x is below some value of y and neither is NaN, because a
// comparison with a NaN is false. If the comparison is false, the result is not below that bound,
// or there was a NaN.
#include "engine/render/float_range.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

constexpr int kMaxRangeDepth = 16;

// What is known of nodes already, because a value is reached in many ways.
using Ranges = absl::flat_hash_map<uint32_t, FloatRange>;

FloatRange Within(UOp u, int depth, Ranges* known);

// What `u` is where x < y holds, or where it does not.
FloatRange Selected(UOp u, UOp x, UOp y, bool holds, int depth, Ranges* known) {
  FloatRange range = Within(u, depth, known);
  const FloatRange of_x = Within(x, depth, known), of_y = Within(y, depth, known);
  if (holds && u == x) range = {range.lo, std::min(range.hi, of_y.hi), false};
  if (holds && u == y) range = {std::max(range.lo, of_x.lo), range.hi, false};
  // A NaN of the other one makes the comparison false whatever this one is.
  if (!holds && u == x && !of_y.nan) range.lo = std::max(range.lo, of_y.lo);
  if (!holds && u == y && !of_x.nan) range.hi = std::min(range.hi, of_x.hi);
  return range;
}

// Of finite bounds alone, as rounding to f32 may move them.
FloatRange Bounded(double lo, double hi, bool nan) {
  constexpr double kMost = 0x1p100, kRounding = 0x1p-20;
  if (!(lo >= -kMost && hi <= kMost)) return {};
  const double slack = kRounding * (std::max(std::abs(lo), std::abs(hi)) + kRounding);
  return {lo - slack, hi + slack, nan};
}

FloatRange Product(const FloatRange& x, const FloatRange& y) {
  const double ends[] = {x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi};
  if (std::ranges::any_of(ends, [](double end) { return !std::isfinite(end); })) return {};
  return Bounded(std::ranges::min(ends), std::ranges::max(ends), x.nan || y.nan);
}

FloatRange Compute(UOp u, int depth, Ranges* known) {
  switch (u.op()) {
    case Op::kConst: {
      const double value = ScalarAsDouble(u.dtype(), u.const_word());
      return std::isnan(value) ? FloatRange{} : FloatRange{value, value, false};
    }
    case Op::kCast: {
      // Integers that the type holds exactly, or is next to.
      const UOp x = u.src(0);
      if (IsFloat(x.dtype()) || x.dtype() == DType::kUInt64 || ByteSize(u.dtype()) < 4) return {};
      return Bounded(static_cast<double>(x.vmin()), static_cast<double>(x.vmax()), false);
    }
    case Op::kReshape:
    case Op::kExpand:
      return Within(u.src(0), depth, known);
    case Op::kFloor:
    case Op::kTrunc: {
      const FloatRange x = Within(u.src(0), depth, known);
      return {u.is(Op::kFloor) || x.lo > 0 ? std::floor(x.lo) : std::ceil(x.lo),
              u.is(Op::kFloor) || x.hi > 0 ? std::floor(x.hi) : std::ceil(x.hi), x.nan};
    }
    case Op::kNeg: {
      const FloatRange x = Within(u.src(0), depth, known);
      return {-x.hi, -x.lo, x.nan};
    }
    case Op::kMax: {
      const FloatRange x = Within(u.src(0), depth, known), y = Within(u.src(1), depth, known);
      return {std::max(x.lo, y.lo), std::max(x.hi, y.hi), x.nan || y.nan};
    }
    case Op::kSub:
    case Op::kAdd: {
      const FloatRange x = Within(u.src(0), depth, known);
      FloatRange y = Within(u.src(1), depth, known);
      if (u.is(Op::kSub)) y = {-y.hi, -y.lo, y.nan};
      if (x.lo != x.hi && y.lo != y.hi) {
        if (ByteSize(u.dtype()) < 4) return {};
        return Bounded(x.lo + y.lo, x.hi + y.hi, x.nan || y.nan);
      }
      const auto rounded = [&](double sum) {
        return u.dtype() == DType::kFloat32 ? static_cast<double>(static_cast<float>(sum)) : sum;
      };
      // NaN where infinities of both signs meet.
      const double lo = rounded(x.lo + y.lo), hi = rounded(x.hi + y.hi);
      return std::isnan(lo) || std::isnan(hi) ? FloatRange{} : FloatRange{lo, hi, x.nan || y.nan};
    }
    case Op::kMul:
      if (ByteSize(u.dtype()) < 4) return {};
      return Product(Within(u.src(0), depth, known), Within(u.src(1), depth, known));
    case Op::kMulAcc: {
      if (ByteSize(u.dtype()) < 4) return {};
      const FloatRange product =
          Product(Within(u.src(0), depth, known), Within(u.src(1), depth, known));
      const FloatRange z = Within(u.src(2), depth, known);
      return Bounded(product.lo + z.lo, product.hi + z.hi, product.nan || z.nan);
    }
    case Op::kWhere: {
      const UOp c = u.src(0);
      if (!c.is(Op::kCmpLt) || c.src(0).dtype() != u.dtype()) return {};
      const FloatRange yes = Selected(u.src(1), c.src(0), c.src(1), true, depth, known);
      const FloatRange no = Selected(u.src(2), c.src(0), c.src(1), false, depth, known);
      return {std::min(yes.lo, no.lo), std::max(yes.hi, no.hi), yes.nan || no.nan};
    }
    default:
      return {};
  }
}

FloatRange Within(UOp u, int depth, Ranges* known) {
  if (!IsFloat(u.dtype()) || ++depth > kMaxRangeDepth) return {};
  if (const auto at = known->find(u.id()); at != known->end()) return at->second;
  const FloatRange range = Compute(u, depth, known);
  (*known)[u.id()] = range;
  return range;
}

}  // namespace

FloatRange RangeOf(UOp value) {
  Ranges known;
  return Within(value, 0, &known);
}

Nearest NearestOf(UOp cast) {
  constexpr double kWhole = 0x1.8p23, kMost = 0x1p22;
  const auto is = [](UOp u, double number) {
    return u.is_const() && ScalarAsDouble(u.dtype(), u.const_word()) == number;
  };
  if (!cast.is(Op::kCast) || cast.dtype() != DType::kInt32) return {};
  const UOp less = cast.src(0);
  if (less.dtype() != DType::kFloat32 || !less.is(Op::kAdd) || !is(less.src(1), -kWhole)) return {};
  const UOp sum = less.src(0);
  Nearest out;
  if (sum.is(Op::kAdd) && is(sum.src(1), kWhole)) {
    out.x = sum.src(0);
  } else if (sum.is(Op::kSub) && is(sum.src(0), kWhole)) {
    out = {sum.src(1), true};
  } else {
    return {};
  }
  const FloatRange range = RangeOf(out.x);
  return range.lo >= -kMost && range.hi <= kMost ? out : Nearest{};
}

bool IsNegatedLesser(UOp max) {
  return max.is(Op::kMax) && IsFloat(max.dtype()) && max.src(0).is(Op::kNeg) &&
         max.src(1).is_const();
}

}  // namespace telegrad
