// Interval analysis, one step per node as it is made. Saturating: an operation that could overflow
// its type has unknown bounds, because it wraps.
#include <algorithm>
#include <array>

#include "engine/base/checked.h"
#include "engine/ir/infer.h"

namespace telegrad {
namespace {

constexpr Interval kUnknown{};

// The values a type can hold, as far as an int64 can say it.
Interval RangeOf(DType dtype) {
  if (IsBool(dtype)) return {0, 1};
  const int bits = Info(dtype).bits;
  if (IsSigned(dtype) && bits < 64)
    return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
  if (IsUnsigned(dtype) && bits < 64) return {0, (int64_t{1} << bits) - 1};
  return kUnknown;
}

// `v` if it lies within the type, else what the type can hold.
Interval Fit(DType dtype, Interval v) {
  const Interval all = RangeOf(dtype);
  return v.lo >= all.lo && v.hi <= all.hi ? v : all;
}

int64_t FloorDiv(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

int64_t FloorMod(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

template <typename F>
Interval Corners(Interval x, Interval y, F f) {
  Interval out{INT64_MAX, INT64_MIN};
  for (int64_t a : {x.lo, x.hi}) {
    for (int64_t b : {y.lo, y.hi}) {
      int64_t v;
      if (!f(a, b, &v)) return kUnknown;
      out.lo = std::min(out.lo, v);
      out.hi = std::max(out.hi, v);
    }
  }
  return out;
}

Interval Mod(Interval x, Interval y) {
  if (y.hi < 0 && y.lo > INT64_MIN) return {y.lo + 1, 0};  // it has the sign of y
  if (y.lo <= 0) return kUnknown;
  if (y.constant()) {
    if (FloorDiv(x.lo, y.lo) == FloorDiv(x.hi, y.lo)) {
      return {FloorMod(x.lo, y.lo), FloorMod(x.hi, y.lo)};
    }
  } else if (x.lo >= 0 && x.hi < y.lo) {
    return x;
  }
  return {0, x.lo >= 0 ? std::min(x.hi, y.hi - 1) : y.hi - 1};
}

Interval Compare(bool always, bool never) {
  if (always) return {1, 1};
  if (never) return {0, 0};
  return {0, 1};
}

Interval Bitwise(Op op, DType dtype, Interval x, Interval y) {
  if (IsBool(dtype)) {
    if (op == Op::kAnd) return {x.lo & y.lo, x.hi & y.hi};
    if (op == Op::kOr) return {x.lo | y.lo, x.hi | y.hi};
    if (x.constant() && y.constant()) return {x.lo ^ y.lo, x.lo ^ y.lo};
    return {0, 1};
  }
  // A non-negative side bounds the whole: its clear bits stay clear.
  if (op == Op::kAnd && (x.lo >= 0 || y.lo >= 0)) {
    return {0, std::min(x.lo >= 0 ? x.hi : INT64_MAX, y.lo >= 0 ? y.hi : INT64_MAX)};
  }
  return RangeOf(dtype);
}

}  // namespace

Interval InferBounds(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg) {
  if (!IsInt(dtype) && !IsBool(dtype)) return kUnknown;
  // Values of u64 above INT64_MAX have no place in an Interval.
  if (dtype == DType::kUInt64) return kUnknown;
  for (UOp s : src) {
    if (op == Op::kVar) break;  // clamped
    if (s.dtype() == DType::kUInt64) return RangeOf(dtype);
  }
  const Interval x = src.size() > 0 ? src[0].bounds() : kUnknown;
  const Interval y = src.size() > 1 ? src[1].bounds() : kUnknown;
  switch (op) {
    case Op::kConst:
      return {arg[0], arg[0]};
    case Op::kVar:
      return {arg[1], arg[2]};
    case Op::kIota: {
      const int64_t n = arg[0] >= 0 ? arg[0] : src[0].bounds().hi;
      return Fit(dtype, {0, std::max<int64_t>(n - 1, 0)});
    }
    case Op::kRange:
      return {0, x.hi > 0 ? x.hi - 1 : 0};  // a range that is never entered has no value
    case Op::kReshape:
    case Op::kExpand:
    case Op::kPermute:
    case Op::kFlip:
    case Op::kContiguous:
    case Op::kDetach:
    case Op::kCopy:
    case Op::kMSelect:
    case Op::kUnshard:
      return x;
    case Op::kShrink:
      // A part that leaves its source, which only a symbolic one can, has zeros there.
      if (src.size() == 1 && !src[0].symbolic()) return x;
      [[fallthrough]];
    case Op::kShuffle:
    case Op::kGather:
    case Op::kPad:
      return {std::min<int64_t>(x.lo, 0), std::max<int64_t>(x.hi, 0)};
    case Op::kNeg: {
      int64_t lo, hi;
      if (!CheckedSub(0, x.hi, &lo) || !CheckedSub(0, x.lo, &hi)) return RangeOf(dtype);
      return Fit(dtype, {lo, hi});
    }
    case Op::kAdd:
      return Fit(dtype, Corners(x, y, CheckedAdd));
    case Op::kSub:
      return Fit(dtype, Corners(x, y, CheckedSub));
    case Op::kMul:
      return Fit(dtype, Corners(x, y, CheckedMul));
    case Op::kMax:
      return {std::max(x.lo, y.lo), std::max(x.hi, y.hi)};
    case Op::kFloorDiv:
      if (y.lo <= 0 && y.hi >= 0) return RangeOf(dtype);
      return Fit(dtype, Corners(x, y, [](int64_t a, int64_t b, int64_t* v) {
                   if (a == INT64_MIN && b == -1) return false;  // it wraps
                   *v = FloorDiv(a, b);
                   return true;
                 }));
    case Op::kFloorMod:
      return Fit(dtype, Mod(x, y));
    case Op::kCDiv:
      if (y.lo <= 0) return RangeOf(dtype);
      return Corners(x, y, [](int64_t a, int64_t b, int64_t* v) {
        *v = a / b;
        return true;
      });
    case Op::kCMod:
      if (y.lo <= 0) return RangeOf(dtype);
      return {x.lo >= 0 ? 0 : std::max(x.lo, 1 - y.hi), x.hi <= 0 ? 0 : std::min(x.hi, y.hi - 1)};
    case Op::kCmpLt:
      if (IsFloat(src[0].dtype())) return {0, 1};
      return Compare(x.hi < y.lo, x.lo >= y.hi);
    case Op::kCmpEq:
      if (IsFloat(src[0].dtype())) return {0, 1};
      return Compare(x.constant() && x == y, x.hi < y.lo || y.hi < x.lo);
    case Op::kCmpNe:
      if (IsFloat(src[0].dtype())) return {0, 1};
      return Compare(x.hi < y.lo || y.hi < x.lo, x.constant() && x == y);
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      return Bitwise(op, dtype, x, y);
    case Op::kShr: {
      const int bits = Info(dtype).bits;
      if (y.lo < 0 || y.hi >= bits) return RangeOf(dtype);
      return Corners(x, y, [](int64_t a, int64_t b, int64_t* v) {
        *v = a >> b;
        return true;
      });
    }
    case Op::kWhere: {
      const Interval z = src[2].bounds();
      if (x.constant()) return x.lo != 0 ? y : z;
      return {std::min(y.lo, z.lo), std::max(y.hi, z.hi)};
    }
    case Op::kCast:
      if (IsBool(dtype)) {
        if (IsFloat(src[0].dtype())) return {0, 1};
        return Compare(x.lo > 0 || x.hi < 0, x == Interval{0, 0});
      }
      if (IsFloat(src[0].dtype())) return RangeOf(dtype);
      return Fit(dtype, x);
    default:
      return RangeOf(dtype);
  }
}

}  // namespace telegrad
