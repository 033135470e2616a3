// Elements chosen by their values. The scan of the mask numbers the elements that hold; SCATTER
// sends their positions to these numbers.
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/ops/positions.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

// The positions of the first `size` elements that hold, i64, then -1.
Tensor PositionsOf(const Tensor& mask, int64_t size) {
  Builder* builder = mask.builder();
  const Dim n = ProductOf(builder, mask.dims());
  const Tensor flat = mask.Reshape({n});
  const bool narrow = n.size() <= std::numeric_limits<int32_t>::max();
  const Tensor number = flat.Cast(narrow ? DType::kInt32 : DType::kInt64).CumSum(0) - 1;
  // In memory: a scatter goes one by one, what it computes has no vectors.
  return builder->Full(DType::kInt64, {size}, -1)
      .Scatter(flat.Where(number, -1).Contiguous(), builder->Iota(DType::kInt64, n),
               ScatterKind::kSet);
}

}  // namespace

Tensor Tensor::MaskedSelect(const Tensor& mask, int64_t size, double fill) const {
  if (!valid()) return *this;
  if (!mask.valid() || !IsBool(mask.dtype())) {
    return builder_->Fail(
        InvalidArgument("masked_select: the mask is ", Name(mask.dtype()), ", expected bool"));
  }
  const absl::StatusOr<Dims> both = Broadcast("masked_select", dims(), mask.dims());
  if (!both.ok()) return builder_->Fail(both.status());
  if (size < 0) {
    return builder_->Fail(InvalidArgument("masked_select: the size ", size, " is negative"));
  }
  const Tensor at = PositionsOf(mask.Expand(*both), size);
  const Tensor taken = Expand(*both).Reshape({ProductOf(builder_, *both)}).Gather(at);
  return fill == 0 ? taken : at.Lt(0).Where(Like(fill), taken);
}

Tensor Tensor::Nonzero(int64_t size, int64_t fill) const {
  if (!valid()) return *this;
  if (size < 0) {
    return builder_->Fail(InvalidArgument("nonzero: the size ", size, " is negative"));
  }
  if (rank() == 0) return builder_->Zeros({size, 0}, DType::kInt64);
  const Tensor at = PositionsOf(Cast(DType::kBool), size);
  std::vector<Tensor> columns(static_cast<size_t>(rank()));
  Tensor rest = at;
  for (int64_t i = rank(); i-- > 0;) {
    const Tensor n = AsTensor(builder_, dims()[i]);
    columns[i] = at.Lt(0).Where(fill, i == 0 ? rest : rest.FloorMod(n));
    rest = rest.FloorDiv(n);
  }
  return Stack(columns, 1);
}

Tensor Tensor::CountNonzero() const { return Cast(DType::kBool).Cast(DType::kInt64).Sum(); }

}  // namespace telegrad
