// Products of vectors and matrices: a broadcast product, summed over its last axis. The second
// operand is transposed for that, which costs nothing, since views dissolve into index arithmetic.
#include "engine/base/status.h"
#include "engine/frontend/ops/products.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {

DType FactorType(DType type) {
  if (IsNarrowFloat(type)) return DType::kFloat32;
  return IsBool(type) ? DType::kInt32 : type;
}

Factors ToFactors(std::string_view op, const Tensor& a, const Tensor& b) {
  Builder* builder = a.builder() != nullptr ? a.builder() : b.builder();
  if (builder == nullptr) return {};
  if (!a.valid() || !b.valid()) {
    builder->Fail(InvalidArgument(op, ": an operand is an empty tensor"));
    return {};
  }
  const DType type = a.dtype() == b.dtype() ? a.dtype() : PromoteTypes(a.dtype(), b.dtype());
  if (type == DType::kVoid) {
    builder->Fail(InvalidArgument(op, ": element types ", Name(a.dtype()), " ", ToString(a.dims()),
                                  " and ", Name(b.dtype()), " ", ToString(b.dims()),
                                  " have no common type; cast one"));
    return {};
  }
  // The products of the type itself are exact in the wider one.
  const DType sum = FactorType(type);
  return {a.Cast(type).Cast(sum), b.Cast(type).Cast(sum), type};
}

namespace {

// The sum over the last axis, which goes, as `type`.
Tensor SumLast(const Tensor& products, DType type) {
  return products.Sum({-1}, true).Squeeze(-1).Cast(type);
}

// Whether axis `i` of `a` and axis `j` of `b` are of one size.
bool SameSize(const Tensor& a, int64_t i, const Tensor& b, int64_t j) {
  return a.dims()[i < 0 ? i + a.rank() : i] == b.dims()[j < 0 ? j + b.rank() : j];
}

absl::Status CheckInner(std::string_view op, const Tensor& a, const Tensor& b) {
  const bool scalar = a.rank() == 0 || b.rank() == 0;
  const int64_t inner = b.rank() == 1 ? 0 : -2;
  if (!scalar && SameSize(a, -1, b, inner)) return absl::OkStatus();
  if (scalar) {
    return InvalidArgument(op, ": ", ToString(a.dims()), " and ", ToString(b.dims()),
                           ": a scalar has no axis to sum over");
  }
  return InvalidArgument(
      op, ": ", ToString(a.dims()), " and ", ToString(b.dims()), ": the last axis has ", a.dim(-1),
      ", the ", b.rank() == 1 ? "only" : "second to last", " axis of the other has ", b.dim(inner));
}

}  // namespace

// [.., m, 1, k] * [.., 1, n, k], summed over k; vectors get an axis that is dropped again.
Tensor Tensor::MatMul(const Tensor& other) const {
  const Factors f = ToFactors("matmul", *this, other);
  if (!f.valid()) return f.a;
  if (absl::Status s = CheckInner("matmul", *this, other); !s.ok()) return builder_->Fail(s);
  const bool row = rank() == 1, column = other.rank() == 1;
  const Tensor a = row ? f.a.Unsqueeze(0) : f.a;
  const Tensor b = column ? f.b : f.b.Transpose();
  const auto [x, y] = Unify("matmul", a.Unsqueeze(-2), column ? b.Unsqueeze(0) : b.Unsqueeze(-3));
  if (!x.valid()) return x;
  Tensor out = SumLast(x.Mul(y), f.type);
  if (column) out = out.Squeeze(-1);
  if (row) out = out.Squeeze(column ? -1 : -2);
  return out;
}

// Every row of one with every column of the other: [a.., 1.., k] * [b.., n, k].
Tensor Tensor::Dot(const Tensor& other) const {
  const Factors f = ToFactors("dot", *this, other);
  if (!f.valid()) return f.a;
  if (rank() == 0 || other.rank() == 0) return f.a.Mul(f.b).Cast(f.type);
  if (absl::Status s = CheckInner("dot", *this, other); !s.ok()) return builder_->Fail(s);
  Dims spread = f.a.dims();
  spread.insert(spread.end() - 1, static_cast<size_t>(other.rank() - 1), Dim(1));
  const Tensor b = other.rank() == 1 ? f.b : f.b.Transpose();
  return SumLast(f.a.Reshape(spread).Mul(b), f.type);
}

Tensor Tensor::Linear(const Tensor& weight, const Tensor& bias) const {
  if (!valid()) return *this;
  if (rank() == 0 || weight.rank() != 2 || !SameSize(*this, -1, weight, 1)) {
    return builder_->Fail(InvalidArgument("linear: ", ToString(dims()), " with a weight of ",
                                          ToString(weight.dims()),
                                          ", expected [..., in] and [out, in]"));
  }
  const Tensor y = MatMul(weight.Transpose());
  if (bias.builder() == nullptr) return y;
  if (y.valid() && bias.valid() && (bias.rank() != 1 || !SameSize(bias, 0, weight, 0))) {
    return builder_->Fail(InvalidArgument("linear: a bias of ", ToString(bias.dims()), " for ",
                                          ToString(y.dims()), ", expected [", weight.dim(0), "]"));
  }
  return y.Add(bias);
}

}  // namespace telegrad
