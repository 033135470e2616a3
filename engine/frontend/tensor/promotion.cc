#include "engine/frontend/tensor/promotion.h"

#include <array>

#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

struct Edge {
  DType from, to;
};

// Ordered from the least upwards: no edge leads to a type that an earlier one leaves.
constexpr Edge kLattice[] = {
    {DType::kBool, DType::kUInt8},
    {DType::kBool, DType::kInt8},
    {DType::kUInt8, DType::kUInt16},
    {DType::kUInt8, DType::kInt16},
    {DType::kInt8, DType::kInt16},
    {DType::kUInt16, DType::kUInt32},
    {DType::kUInt16, DType::kInt32},
    {DType::kInt16, DType::kInt32},
    {DType::kUInt32, DType::kUInt64},
    {DType::kUInt32, DType::kInt64},
    {DType::kInt32, DType::kInt64},
    {DType::kInt64, DType::kFloat8E4M3},
    {DType::kInt64, DType::kFloat8E5M2},
    {DType::kInt64, DType::kFloat8E4M3Fnuz},
    {DType::kInt64, DType::kFloat8E5M2Fnuz},
    {DType::kUInt64, DType::kFloat8E4M3},
    {DType::kUInt64, DType::kFloat8E5M2},
    {DType::kUInt64, DType::kFloat8E4M3Fnuz},
    {DType::kUInt64, DType::kFloat8E5M2Fnuz},
    {DType::kFloat8E4M3, DType::kFloat16},
    {DType::kFloat8E4M3, DType::kBFloat16},
    {DType::kFloat8E5M2, DType::kFloat16},
    {DType::kFloat8E5M2, DType::kBFloat16},
    {DType::kFloat8E4M3Fnuz, DType::kFloat16},
    {DType::kFloat8E4M3Fnuz, DType::kBFloat16},
    {DType::kFloat8E5M2Fnuz, DType::kFloat16},
    {DType::kFloat8E5M2Fnuz, DType::kBFloat16},
    {DType::kFloat16, DType::kFloat32},
    {DType::kBFloat16, DType::kFloat32},
    {DType::kFloat32, DType::kFloat64},
};

// By type, the types at or above it, as bits.
constexpr auto kAbove = [] {
  std::array<uint32_t, 32> above{};
  for (size_t i = std::size(kLattice); i-- > 0;) {
    const auto from = static_cast<size_t>(kLattice[i].from),
               to = static_cast<size_t>(kLattice[i].to);
    above[to] |= 1u << to;
    above[from] |= 1u << from | above[to];
  }
  return above;
}();

// Whether an integer type has the value of a number. One of 2^63 or more has a negative
// int_value().
bool Holds(DType type, const Operand& number) {
  const int bits = Info(type).bits;
  const int64_t value = number.int_value();
  if (value < 0 && number.float_value() > 0) return type == DType::kUInt64;
  if (IsUnsigned(type)) return value >= 0 && (bits == 64 || value >> bits == 0);
  return bits == 64 || (value >> (bits - 1) == 0 || value >> (bits - 1) == -1);
}

Tensor Materialize(std::string_view op, Builder* builder, const Operand& x, DType type) {
  if (x.is_tensor()) return x.tensor().Cast(type);
  if (x.kind() == Operand::Kind::kInt && IsInt(type) && !Holds(type, x)) {
    return builder->Fail(
        InvalidArgument(op, ": the number ", x.int_value(), " is outside of ", Name(type)));
  }
  return builder->Const(type, x);
}

// Scalars broadcast by themselves.
Tensor Spread(const Tensor& t, const Dims& shape) { return t.rank() == 0 ? t : t.Expand(shape); }

}  // namespace

DType PromoteTypes(DType a, DType b) {
  const uint32_t both = kAbove[static_cast<size_t>(a)] & kAbove[static_cast<size_t>(b)];
  for (uint32_t rest = both; rest != 0; rest &= rest - 1) {
    const int type = __builtin_ctz(rest);
    if (kAbove[type] == both) return static_cast<DType>(type);
  }
  if (both == 0) return DType::kVoid;
  // Of i64 with u64 there is no least one: tinygrad takes its default float. Two formats of 8 bits
  // have two types above them, f16 and bf16; it takes the first.
  return IsInt(a) ? DType::kFloat32 : static_cast<DType>(__builtin_ctz(both));
}

DType PromoteNumber(DType tensor, Operand::Kind number) {
  if (number == Operand::Kind::kFloat) return FloatType(tensor);
  return number == Operand::Kind::kInt && IsBool(tensor) ? DType::kInt32 : tensor;
}

DType FloatType(DType type) { return IsFloat(type) ? type : DType::kFloat32; }

Pair Unify(std::string_view op, const Operand& a, const Operand& b) {
  Builder* builder = a.tensor().builder() != nullptr ? a.tensor().builder() : b.tensor().builder();
  if (builder == nullptr) return {};
  if ((a.is_tensor() && !a.tensor().valid()) || (b.is_tensor() && !b.tensor().valid())) {
    builder->Fail(InvalidArgument(op, ": an operand is an empty tensor"));
    return {};
  }
  DType type = DType::kVoid;
  if (!a.is_tensor()) {
    type = PromoteNumber(b.tensor().dtype(), a.kind());
  } else if (!b.is_tensor()) {
    type = PromoteNumber(a.tensor().dtype(), b.kind());
  } else {
    const DType x = a.tensor().dtype(), y = b.tensor().dtype();
    type = x == y ? x : PromoteTypes(x, y);
    if (type == DType::kVoid) {
      builder->Fail(InvalidArgument(op, ": element types ", Name(x), " ",
                                    ToString(a.tensor().dims()), " and ", Name(y), " ",
                                    ToString(b.tensor().dims()), " have no common type; cast one"));
      return {};
    }
  }
  const Tensor x = Materialize(op, builder, a, type), y = Materialize(op, builder, b, type);
  if (!x.valid() || !y.valid()) return {};
  const absl::StatusOr<Dims> shape = Broadcast(op, x.dims(), y.dims());
  if (!shape.ok()) {
    builder->Fail(shape.status());
    return {};
  }
  return {Spread(x, *shape), Spread(y, *shape)};
}

}  // namespace telegrad
