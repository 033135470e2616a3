// Tensors made of nothing: constants, ranges, identity, variables.
#include <algorithm>
#include <cmath>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/promotion.h"
#include "engine/frontend/shapes.h"

namespace telegrad {

Tensor Builder::Const(DType dtype, double value) { return Const(dtype, Operand(value)); }

Tensor Builder::Const(DType dtype, const Operand& number) {
  if (dtype == DType::kVoid) return Fail(InvalidArgument("const: needs an element type"));
  if (number.is_tensor()) return Fail(InvalidArgument("const: expects a number, got a tensor"));
  if (IsFloat(dtype)) return {this, graph_.ConstFloat(dtype, number.float_value())};
  if (number.kind() != Operand::Kind::kFloat) {
    return {this,
            graph_.Const(dtype, IsBool(dtype) ? number.int_value() != 0 : number.int_value())};
  }
  const double value = number.float_value();
  if (IsBool(dtype)) return {this, graph_.Const(dtype, value != 0)};
  if (!(value >= -0x1p63 && value < 0x1p64)) {
    return Fail(InvalidArgument("const: ", value, " is no ", Name(dtype)));
  }
  return {this,
          graph_.Const(dtype, value >= 0x1p63 ? static_cast<int64_t>(static_cast<uint64_t>(value))
                                              : static_cast<int64_t>(value))};
}

Tensor Builder::Full(DType dtype, const Dims& shape, const Operand& number) {
  return Const(dtype, number).Expand(shape);
}
Tensor Builder::Zeros(const Dims& shape, DType dtype) { return Full(dtype, shape, 0); }
Tensor Builder::Ones(const Dims& shape, DType dtype) { return Full(dtype, shape, 1); }

Tensor Builder::Iota(DType dtype, const Dim& n) {
  return MakeSized(Op::kIota, dtype, {}, std::span(&n, 1));
}

Tensor Builder::Literal(DType dtype, const Shape& shape, std::span<const double> values) {
  if (const auto bytes = CheckedByteSize(dtype, shape); !bytes.ok()) return Fail(bytes.status());
  if (NumElements(shape) != static_cast<int64_t>(values.size())) {
    return Fail(InvalidArgument("literal: shape ", ToString(shape), " has ", NumElements(shape),
                                " elements, got ", values.size()));
  }
  if (values.empty()) return Zeros(shape, dtype);
  std::vector<UOp> parts;
  for (double value : values) {
    const Tensor part = Const(dtype, value).Reshape({1});
    if (!part.valid()) return part;
    parts.push_back(part.uop());
  }
  const int64_t axis[] = {0};
  const Tensor row(this,
                   parts.size() == 1 ? parts[0] : graph_.Make(Op::kCat, DType::kVoid, parts, axis));
  return row.Reshape(shape);
}

Tensor Builder::Variable(std::string_view name, int64_t min, int64_t max, int64_t multiple) {
  if (name.empty() ||
      std::ranges::find(variables_, name, &PlanVariable::name) != variables_.end()) {
    return Fail(InvalidArgument("variable: '", name, "' is empty or there is one already"));
  }
  const auto id = static_cast<int64_t>(variables_.size());
  const int64_t arg[] = {id, min, max, multiple};
  const Tensor out = Make(Op::kVar, DType::kVoid, {}, arg);
  if (out.valid()) variables_.push_back({std::string(name), id, min, max, multiple});
  return out;
}

Tensor Tensor::FullLike(const Operand& value) const {
  return valid() ? builder_->Full(dtype(), dims(), value) : *this;
}
Tensor Tensor::ZerosLike() const { return FullLike(0); }
Tensor Tensor::OnesLike() const { return FullLike(1); }

Tensor Tensor::SizeOf(const Axes& axes) const {
  if (!valid()) return *this;
  const absl::StatusOr<Axes> resolved = ResolveAxes("size_of", axes, rank());
  if (!resolved.ok()) return builder_->Fail(resolved.status());
  int64_t known = 1;
  Tensor product;
  for (int64_t axis : *resolved) {
    const UOp value = uop_.dim(static_cast<int>(axis));
    if (!value.valid()) {
      if (!CheckedMul(known, shape()[axis], &known)) {
        return builder_->Fail(InvalidArgument("size_of: ", ToString(shape()), " is too large"));
      }
    } else {
      const Tensor factor(builder_, value);
      product = product.valid() ? product * factor : factor;
    }
  }
  if (!product.valid()) return builder_->Const(DType::kInt64, known);
  return known == 1 ? product : product * known;
}

}  // namespace telegrad
