// Floats have only the rows that keep every bit: x + 0 is not x (for -0), x * 0 is not 0 (for NaN).
#include "engine/rules/algebra.h"

#include <bit>
#include <cmath>

#include "engine/ir/scalar.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/fold.h"
#include "engine/rules/order.h"

namespace telegrad {
namespace {

using namespace pattern;  // NOLINT: the names of rows

UOp FoldConstants(Rewriter& b, const Match& m) {
  const std::optional<int64_t> word = Fold(m.root);
  return word ? b.graph()->ConstWord(m.root.dtype(), *word) : UOp();
}

// An integer whose bounds meet is that constant. A RANGE stays: loops are named by it.
UOp FoldBounds(Rewriter& b, const Match& m) {
  if (!Is(m.root.op(), kAlu)) return {};
  const Interval bounds = m.root.bounds();
  if (IsFloat(m.root.dtype()) || !bounds.constant()) return {};
  return b.graph()->ConstWord(m.root.dtype(), bounds.lo);
}

UOp Commute(Rewriter& b, const Match& m) {
  const UOp u = m.root;
  if (!Is(u.op(), kCommutes) || u.num_src() != 2 || !OutOfOrder(u.op(), u.src(0), u.src(1))) {
    return {};
  }
  return b.Make(u.op(), {u.src(1), u.src(0)});
}

// Whether every value of a float format has its own value in another.
bool HoldsFormat(const DTypeInfo& to, const DTypeInfo& from) {
  using enum FloatSpecials;
  const auto top = [](const DTypeInfo& f) {  // exponent of the largest value
    return (1 << f.exponent_bits) - 1 - f.bias - (f.specials == kIeee || f.mantissa_bits == 0);
  };
  const auto quantum = [](const DTypeInfo& f) {  // exponent of the smallest value
    return (f.mantissa_bits == 0 ? 0 : 1) - f.bias - f.mantissa_bits;
  };
  if (to.specials == kPowersOfTwo) return false;  // without zero
  if (from.specials == kIeee && to.specials != kIeee) return false;
  if (from.specials != kFinite && to.specials == kFinite) return false;  // NaN
  if (to.specials == kNegZeroNan && from.specials != kNegZeroNan && from.specials != kPowersOfTwo) {
    return false;  // -0
  }
  return to.mantissa_bits >= from.mantissa_bits && top(to) >= top(from) &&
         quantum(to) <= quantum(from) && (to.specials != kNanOnly || top(to) > top(from));
}

// Whether every value of `from` has its own value in `to`.
bool Holds(DType to, DType from) {
  const DTypeInfo &t = Info(to), &f = Info(from);
  if (to == from) return true;
  if (IsFloat(from)) return IsFloat(to) && HoldsFormat(t, f);
  if (IsBool(to) || t.specials == FloatSpecials::kPowersOfTwo) return false;
  if (IsBool(from)) return true;
  if (IsFloat(to)) return f.bits - (IsSigned(from) ? 1 : 0) <= t.mantissa_bits + 1;
  if (IsUnsigned(to)) return IsUnsigned(from) && t.bits >= f.bits;
  return t.bits > f.bits || (t.bits == f.bits && IsSigned(from));
}

// Whether the values that an integer takes on are all in an integer type.
bool HoldsValues(DType to, UOp x) {
  if (!IsInt(to) || !IsInt(x.dtype()) || !x.bounds().known()) return false;
  return ScalarFromInt(to, x.vmin()) == x.vmin() && ScalarFromInt(to, x.vmax()) == x.vmax() &&
         to != DType::kUInt64;
}

UOp CastOfCast(Rewriter& b, const Match& m) {
  const DType to = m.root.dtype(), middle = m.root.src(0).dtype(), from = m.x().dtype();
  if (HoldsValues(middle, m.x())) return b.Make(Op::kCast, to, {m.x()});
  // Either the middle loses nothing, or all three are integers that wrap and the last is the
  // narrowest.
  const bool wraps =
      IsInt(to) && IsInt(middle) && !IsFloat(from) && Info(to).bits <= Info(middle).bits;
  if (!Holds(middle, from) && !wraps) return {};
  // A float saturates where an integer wraps.
  if (IsFloat(middle) && !IsFloat(from) && IsInt(to) && !Holds(to, from)) return {};
  return b.Make(Op::kCast, to, {m.x()});
}

UOp SameCast(Rewriter&, const Match& m) { return m.x().dtype() == m.root.dtype() ? m.x() : UOp(); }

UOp BitcastOfBitcast(Rewriter& b, const Match& m) {
  if (IsBool(m.root.src(0).dtype())) return {};
  return b.Make(Op::kBitcast, m.root.dtype(), {m.x()});
}

// x - c = x + (-c): exact on floats, wrapping on integers.
UOp SubConst(Rewriter& b, const Match& m) {
  return b.Make(Op::kAdd, {m.x(), b.Make(Op::kNeg, {m.c0()})});
}

// x / 2^k = x * 2^-k, where the type has both.
UOp DivByPowerOfTwo(Rewriter& b, const Match& m) {
  const double c = std::bit_cast<double>(m.k0());
  int exponent;
  if (!std::isfinite(c) || std::fabs(std::frexp(c, &exponent)) != 0.5) return {};
  const int64_t inverse = ScalarFromDouble(m.root.dtype(), 1 / c);
  if (!std::isfinite(1 / c) || inverse != std::bit_cast<int64_t>(1 / c)) return {};
  return b.Make(Op::kMul, {m.x(), b.graph()->ConstFloat(m.root.dtype(), 1 / c)});
}

// cast(x) to bool is x != 0, so that comparisons are all one kind.
UOp CastToBool(Rewriter& b, const Match& m) {
  if (!IsBool(m.root.dtype()) || IsBool(m.x().dtype()) || IsStorage(m.x().dtype())) return {};
  return b.Make(Op::kCmpNe, {m.x(), b.graph()->Const(m.x().dtype(), 0)});
}

// A bool that was widened and is compared with 0 again.
UOp WidenedBool(Rewriter&, const Match& m) { return IsBool(m.x().dtype()) ? m.x() : UOp(); }

// x <= y is "not y < x", of what is no NaN.
UOp NotMore(Rewriter& b, const Match& m) {
  if (IsFloat(m.x().dtype())) return {};
  return b.Make(Op::kXor,
                {b.Make(Op::kCmpLt, {m.y(), m.x()}), b.graph()->ConstWord(DType::kBool, 1)});
}

UOp WidenedBoolIsFalse(Rewriter& b, const Match& m) {
  if (!IsBool(m.x().dtype())) return {};
  return b.Make(Op::kXor, {m.x(), b.graph()->ConstWord(DType::kBool, 1)});
}

// A bool that is chosen by itself.
UOp SelectedBool(Rewriter&, const Match& m) { return IsBool(m.root.dtype()) ? m.x() : UOp(); }

// The formatter takes a binary & or * for the declaration of a reference or pointer.
// clang-format off
constexpr Rule kAlgebraRows[] = {
    // Constants.
    rule(x, FoldConstants),
    rule(x, FoldBounds, when(kBits)),
    rule(x, Commute),

    // Neutral and absorbing elements.
    rule(x + 0, x, when(kInts)),
    rule(x + -0.0, x, when(kFloats)),
    rule(x - 0, x),
    rule(0 - x, -x, when(kInts)),
    rule(-0.0 - x, -x, when(kFloats)),
    rule(x * 1, x),
    rule(x * 0, 0, when(kInts)),
    rule(x * -1, -x, when(kFloats)),
    rule(x / 1, x),
    rule(0 / x, 0),
    rule(x / 0, 0),
    rule(x % 1, 0),
    rule(0 % x, 0),
    rule(x % 0, 0),
    rule(fdiv(x, 1), x),
    rule(fdiv(x, -1), -x),
    rule(fdiv(1, x), recip(x)),
    rule(fdiv(x, c0), DivByPowerOfTwo),
    rule(pow(x, 0), 1),
    rule(pow(x, 1), x),
    rule(pow(x, 2), x * x),
    rule(pow(x, -1), recip(x)),
    rule(x << 0, x),
    rule(x >> 0, x),
    rule(0 << x, 0),
    rule(0 >> x, 0),
    rule(x & -1, x),
    rule(x & 0, 0),
    rule(x | 0, x),
    rule(x | -1, -1),
    rule(x ^ 0, x),

    // The same operand twice.
    rule(x - x, 0, when(kInts)),
    rule(x + x, x * 2, when(kInts)),
    rule(x & x, x),
    rule(x | x, x),
    rule(x ^ x, 0),
    rule(max(x, x), x),
    rule(x < x, 0),
    rule(x == x, 1, when(kBits)),
    rule(x != x, 0, when(kBits)),
    rule((x & y) & y, x & y),
    rule((x | y) | y, x | y),
    rule((x ^ y) ^ y, x),
    rule(x & (x | y), x),
    rule(x | (x & y), x),
    rule(max(max(x, y), y), max(x, y)),
    rule((x + y) - y, x, when(kInts)),
    rule((x - y) + y, x, when(kInts)),

    // Negation and subtraction.
    rule(-(-x), x),
    rule(x - -y, x + y),
    rule(x + -y, x - y),
    rule(x - c0, SubConst, when(kSigned | kFloats)),

    // Constants together.
    rule((x + c0) + c1, x + (c0 + c1), when(kInts)),
    rule(c0 - (x + c1), (c0 - c1) - x, when(kInts)),
    rule((c0 - x) + c1, (c0 + c1) - x, when(kInts)),
    rule((x * c0) * c1, x * (c0 * c1), when(kInts)),
    rule(-x * c0, x * (0 - c0), when(kInts)),
    rule(-(x * c0), x * (0 - c0), when(kInts)),
    rule((x & c0) & c1, x & (c0 & c1)),
    rule((x | c0) | c1, x | (c0 | c1)),
    rule((x ^ c0) ^ c1, x ^ (c0 ^ c1)),
    rule(max(max(x, c0), c1), max(x, max(c0, c1)), when(kBools | kSigned)),
    rule(x * c0 + x * c1, x * (c0 + c1), when(kInts)),
    rule(x * c0 + x, x * (c0 + 1), when(kInts)),
    rule((y + x * c0) + x * c1, y + x * (c0 + c1), when(kInts)),
    rule((y + x * c0) + x, y + x * (c0 + 1), when(kInts)),
    rule((y + x) + x * c0, y + x * (c0 + 1), when(kInts)),
    rule((y + x) + x, y + x * 2, when(kInts)),

    // Comparisons of booleans; "not x" is x ^ 1.
    rule(x == 1, x, when(kBools)),
    rule(x == 0, x ^ 1, when(kBools)),
    rule(x != 0, x, when(kBools)),
    rule(x != 1, x ^ 1, when(kBools)),
    rule(x != y, x ^ y, when(kBools)),
    rule((x == y) ^ 1, x != y, when(kBools)),
    rule((x != y) ^ 1, x == y, when(kBools)),
    rule(x & (x ^ 1), 0, when(kBools)),
    rule(x | (x ^ 1), 1, when(kBools)),
    rule((x < y) | (x == y), NotMore),

    // Selection.
    rule(where(1, x, y), x),
    rule(where(0, x, y), y),
    rule(where(x, y, y), y),
    rule(where(x, 1, 0), SelectedBool),
    rule(where(x ^ 1, y, z), where(x, z, y)),
    rule(where(x, where(x, y, z), c0), where(x, y, c0)),
    rule(where(x, c0, where(x, y, z)), where(x, c0, z)),

    // Casts.
    rule(cast(x), SameCast),
    rule(cast(cast(x)), CastOfCast),
    rule(cast(x), CastToBool),
    rule(cast(x) != 0, WidenedBool),
    rule(cast(x) == 0, WidenedBoolIsFalse),
    rule(bitcast(x), SameCast),
    rule(bitcast(bitcast(x)), BitcastOfBitcast),

    // Integral floats stay.
    rule(floor(cast(x)),
         [](Rewriter& b, const Match& m) {
           return IsFloat(m.x().dtype()) ? UOp() : b.Make(Op::kCast, m.root.dtype(), {m.x()});
         }),
    rule(trunc(cast(x)),
         [](Rewriter& b, const Match& m) {
           return IsFloat(m.x().dtype()) ? UOp() : b.Make(Op::kCast, m.root.dtype(), {m.x()});
         }),
    rule(trunc(trunc(x)), trunc(x)),
    rule(floor(floor(x)), floor(x)),
    rule(trunc(floor(x)), floor(x)),
    rule(floor(trunc(x)), trunc(x)),
};
// clang-format on

}  // namespace

constexpr RuleTable kAlgebra{"algebra", kAlgebraRows};

}  // namespace telegrad
