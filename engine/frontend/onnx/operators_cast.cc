// Casts by the rules of ONNX's Cast: floats wrap into types of 4 and 2 bits, 8-bit floats keep
// their largest value unless `saturate` is 0, f8e8m0 rounds as `round_mode` says.
#include <cmath>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"

namespace telegrad::onnx {
namespace {

// 0 of a type that is not an 8-bit float with a sign.
double LargestOfFloat8(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3:
      return 448;
    case DType::kFloat8E4M3Fnuz:
      return 240;
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2Fnuz:
      return 57344;
    default:
      return 0;
  }
}

// The exponent of |x| in f32 is that of f8e8m0 but for what rounding adds. Of a subnormal f32 the
// values are 2^-127, code 0, and what lies below it.
Tensor CastToPowerOfTwo(const Tensor& x, const CastRules& rules) {
  constexpr int64_t kHalf = 0x400000;  // 2^-127 as a subnormal; half a step above it
  const Tensor bits = x.Cast(DType::kFloat32).Abs().Bitcast(DType::kUInt32).Cast(DType::kInt32);
  const Tensor exponent = bits.ShiftRight(23), fraction = bits.And(0x7fffff);
  const Tensor subnormal = exponent.Eq(0);
  Tensor up;
  if (rules.round_mode == "up") {
    up = subnormal.Where(fraction.Gt(kHalf), fraction.Gt(0));
  } else if (rules.round_mode == "nearest") {
    up = subnormal.Where(fraction.Ge(kHalf + kHalf / 2), fraction.Ge(kHalf));
  } else {
    up = fraction.Lt(0);
  }
  Tensor code = exponent + up.Cast(DType::kInt32);
  if (rules.saturate) {
    code = code.Minimum(254);
  } else {
    code = bits.Lt(kHalf).Where(255, code.Minimum(255));
  }
  code = x.IsNan().Where(255, code);
  return code.Cast(DType::kUInt8).Bitcast(DType::kFloat8E8M0);
}

}  // namespace

absl::StatusOr<DType> TypeOf(int64_t number) {
  const auto dtype =
      number >= 1 && number <= 1000 ? DTypeFromOnnx(static_cast<int>(number)) : std::nullopt;
  if (!dtype) return Unimplemented("element type ", number, " is not supported");
  return *dtype;
}

absl::StatusOr<DType> TypeAttribute(NodeContext& c, std::string_view name, DType otherwise) {
  if (!c.HasAttribute(name)) return otherwise;
  TG_ASSIGN_OR_RETURN(const int64_t number, c.Int(name, 0));
  return TypeOf(number);
}

Tensor AlongAxis(const Tensor& x, int64_t axis, int64_t rank) {
  Dims shape(static_cast<size_t>(rank), Dim(1));
  shape[axis] = x.SizeOf(AllAxes(x.rank()));
  return x.Reshape(shape);
}

Tensor WithBounds(const Tensor& x) {
  if (!x.valid() || x.dims().is_static()) return x;
  Dims words;
  for (const int64_t bound : x.shape()) words.insert(words.end(), {Dim(0), Dim(bound)});
  return x.builder()->MakeSized(Op::kPad, DType::kVoid, {x}, words);
}

Tensor Readable(const Tensor& x) {
  if (!IsStorage(x.dtype())) return x;
  if (IsFloat(x.dtype())) return x.Cast(DType::kFloat32);
  return x.Cast(IsUnsigned(x.dtype()) ? DType::kUInt8 : DType::kInt8);
}

namespace {

// Of f32 and f64 at most 2^22 away from 0: a number is added that has no bits for fractions.
Tensor Rounded(const Tensor& x) {
  const double whole = 1.5 * std::exp2(x.dtype() == DType::kFloat64 ? 52 : 23);
  return x + whole - whole;
}

// a b + c, rounded once.
Tensor AddProduct(const Tensor& a, double b, const Tensor& c) {
  return c.valid() ? c.builder()->Make(Op::kMulAcc, DType::kVoid, {a, a.Like(b), c}) : c;
}

}  // namespace

Tensor RoundedWithin(const Tensor& x, double low, double high) {
  // No result is -0, so either 0 will do; by this one, the larger is an instruction.
  if (low == 0) low = -0.0;
  return Rounded(x.Cast(ComposedType(x.dtype())).Maximum(low).Minimum(high));
}

// With r = 1 / s, rounded, q = x r is less than two units in the last place from x / s, and
// q - (q s - x) r rounds to the nearest float, as long as nothing underflows or overflows: for all
// significands of x and s (Markstein, IA-64 and Elementary Functions, 2000, says why). So x is
// clamped before, and what vanishes rounds to 0.
Tensor RoundedQuotient(const Tensor& x, const Tensor& scale, double low, double high) {
  constexpr double kLeast = 0x1p-60, kMost = 0x1p60;
  const UOp known = scale.uop();
  const bool is_f32 = x.dtype() == DType::kFloat32 && scale.dtype() == DType::kFloat32;
  const double s = is_f32 && known.valid() && known.is_const()
                       ? ScalarAsDouble(DType::kFloat32, known.const_word())
                       : 0;
  if (s < kLeast || s > kMost) return RoundedWithin(x / scale, low, high);
  const double r = 1.0F / static_cast<float>(s);
  if (low == 0) low = -0.0;
  const Tensor within = x.Maximum(low * s).Minimum(high * s);
  const Tensor near = within * r;
  return Rounded(AddProduct(AddProduct(near, s, -within), -r, near));
}

Tensor RoundInto(const Tensor& x, const Tensor& scale, const Tensor& zero, DType to) {
  const auto rounded = [&](double low, double high) {
    return (scale.valid() ? RoundedQuotient(x, scale, low, high) : RoundedWithin(x, low, high))
        .Cast(DType::kInt32);
  };
  const IntegerRange range = RangeOf(to);
  const UOp known = zero.valid() ? zero.uop() : UOp();
  const bool is_known = !zero.valid() || known.is_const();
  if (is_known && Info(to).bits <= 16) {  // bounds of the quotient
    const auto z = static_cast<double>(zero.valid() ? known.const_word() : 0);
    const Tensor out = rounded(range.low - z, range.high - z);
    return (zero.valid() ? out + zero.Cast(DType::kInt32) : out).Cast(to);
  }
  Tensor out = rounded(-kFarInteger, kFarInteger);  // what is far lies beyond the type
  if (zero.valid()) out = out + zero.Cast(DType::kInt32);
  return out.Maximum(static_cast<int64_t>(range.low))
      .Minimum(static_cast<int64_t>(range.high))
      .Cast(to);
}

IntegerRange RangeOf(DType dtype) {
  const int bits = Info(dtype).bits;
  if (IsUnsigned(dtype)) return {0, std::exp2(bits) - 1};
  return {-std::exp2(bits - 1), std::exp2(bits - 1) - 1};
}

absl::StatusOr<CastRules> ReadCastRules(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const int64_t saturate, c.Int("saturate", 1));
  TG_ASSIGN_OR_RETURN(const std::string_view mode, c.String("round_mode", "up"));
  if (mode != "up" && mode != "down" && mode != "nearest") {
    return InvalidArgument("'round_mode' is '", mode, "', expected up, down or nearest");
  }
  return CastRules{saturate != 0, mode};
}

Tensor CastTo(const Tensor& given, DType to, const CastRules& rules) {
  if (given.dtype() == to) return given;
  const Tensor x = Readable(given);
  if (to == DType::kFloat8E8M0) return CastToPowerOfTwo(x.Cast(FloatType(x.dtype())), rules);
  const double largest = LargestOfFloat8(to);
  if (largest != 0 && rules.saturate) {
    const Tensor wide = x.Cast(ComposedType(x.dtype()));
    return wide.Maximum(-largest).Minimum(largest).Cast(to);
  }
  if (IsPacked(to) && !IsFloat(to) && IsFloat(x.dtype())) return x.Cast(DType::kInt32).Cast(to);
  return x.Cast(to);
}

absl::Status CastOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const CastRules rules, ReadCastRules(c));
  TG_ASSIGN_OR_RETURN(const Attribute* to, c.Required("to", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeOf(to->i));
  return c.Output(CastTo(x, dtype, rules));
}

absl::Status CastLikeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(1));
  TG_ASSIGN_OR_RETURN(const CastRules rules, ReadCastRules(c));
  return c.Output(CastTo(x, like.dtype(), rules));
}

absl::Status BitCastOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Attribute* to, c.Required("to", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeOf(to->i));
  if (Info(dtype).bits != Info(x.dtype()).bits) {
    return InvalidArgument("from ", Name(x.dtype()), " to ", Name(dtype),
                           ": expected types of the same width");
  }
  return c.Output(dtype == x.dtype() ? x : x.Bitcast(dtype));
}

}  // namespace telegrad::onnx
