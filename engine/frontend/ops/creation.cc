// Tensors made of nothing: constants, ranges, identity, variables.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

constexpr double kMostInt32 = std::numeric_limits<int32_t>::max();

bool IsWhole(double x) { return x == std::floor(x); }

// ceil((end - begin) / step), 0 if that is negative; empty if 64 bits cannot hold it.
std::optional<int64_t> CountOf(int64_t begin, int64_t end, int64_t step) {
  using Wide = __int128;
  const Wide span = static_cast<Wide>(end) - begin, stride = step;
  const Wide count = span / stride + (span % stride != 0 && (span < 0) == (stride < 0) ? 1 : 0);
  if (count > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return static_cast<int64_t>(std::max<Wide>(count, 0));
}

std::optional<int64_t> CountOf(double begin, double end, double step) {
  const double count = std::ceil((end - begin) / step);
  if (!(count < 0x1p63)) return std::nullopt;
  return static_cast<int64_t>(std::max(count, 0.0));
}

}  // namespace

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

// Where all values are i32 they are computed in it: not every device has 64-bit types.
Tensor Builder::Arange(const Operand& begin, const Operand& end, const Operand& step, DType dtype) {
  bool whole = true;
  for (const Operand* x : {&begin, &end, &step}) {
    if (x->is_tensor()) {
      return Fail(
          InvalidArgument("arange: expects numbers, got a tensor; Iota takes a symbolic "
                          "size"));
    }
    whole = whole && x->kind() != Operand::Kind::kFloat;
  }
  const double first = begin.float_value(), stride = step.float_value();
  if (stride == 0 || !std::isfinite(first) || !std::isfinite(end.float_value()) ||
      !std::isfinite(stride)) {
    return Fail(InvalidArgument("arange: from ", first, " to ", end.float_value(), " by ", stride,
                                " has no end"));
  }
  const std::optional<int64_t> count =
      whole ? CountOf(begin.int_value(), end.int_value(), step.int_value())
            : CountOf(first, end.float_value(), stride);
  if (!count) {
    return Fail(InvalidArgument("arange: from ", first, " to ", end.float_value(), " by ", stride,
                                " has too many elements"));
  }
  if (dtype == DType::kVoid) dtype = whole ? DType::kInt32 : DType::kFloat32;
  const double last = first + static_cast<double>(*count) * stride;
  const bool narrow = IsWhole(first) && IsWhole(stride) && std::abs(first) <= kMostInt32 &&
                      std::abs(last) <= kMostInt32 && std::abs(stride) <= kMostInt32;
  const DType inside = narrow ? DType::kInt32 : whole ? DType::kInt64 : DType::kFloat64;
  const auto number = [&](const Operand& x) { return Const(inside, x); };
  const Tensor steps = Iota(narrow ? DType::kInt32 : DType::kInt64, *count).Cast(inside);
  return (steps * number(step) + number(begin)).Cast(dtype);
}

// The last is `end` itself; integers are rounded down, as NumPy does.
Tensor Builder::Linspace(double begin, double end, int64_t count, DType dtype) {
  if (count < 0) return Fail(InvalidArgument("linspace: ", count, " elements"));
  const Tensor steps = Iota(DType::kInt64, count);
  const double step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0;
  const Tensor inner = steps.Cast(DType::kFloat64) * step + begin;
  const Tensor out = count > 1 ? steps.Eq(count - 1).Where(end, inner) : inner;
  return (IsInt(dtype) ? out.Floor() : out).Cast(dtype);
}

Tensor Builder::Eye(int64_t rows, std::optional<int64_t> columns, DType dtype) {
  if (rows < 0 || columns.value_or(rows) < 0) {
    return Fail(InvalidArgument("eye: ", rows, " rows, ", columns.value_or(rows), " columns"));
  }
  const Tensor row = Iota(DType::kInt64, rows).Unsqueeze(-1);
  return row.Eq(Iota(DType::kInt64, columns.value_or(rows))).Cast(dtype);
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

Tensor Tensor::FullLike(const Operand& value, DType type) const {
  if (!valid()) return *this;
  return builder_->Full(type == DType::kVoid ? dtype() : type, dims(), value);
}
Tensor Tensor::ZerosLike(DType type) const { return FullLike(0, type); }
Tensor Tensor::OnesLike(DType type) const { return FullLike(1, type); }

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
