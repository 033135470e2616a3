// Scans. An axis stays where it is. It is cut into blocks, which are reduced to one element each;
// the running reductions of these, one block further on, are what comes before each block; and
// within a block element i is the reduction of those up to i, a masked reduction. Blocks of blocks
// make long axes short, so that n elements in blocks of k take k n steps, 2 log_k(n) kernels and
// memory for n elements.
#include "engine/base/status.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/ops/reduce.h"
#include "engine/frontend/ops/rows.h"
#include "engine/frontend/tensor/shapes.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

// Elements of a block. Each takes as many steps, and each level of blocks kernels of its own. Where
// lanes lie along other axes, the levels are cheaper than the steps.
constexpr int64_t kAlongAxis = 16, kAcrossAxis = 8;
constexpr int64_t kLanes = 8;  // of vectors; fewer elements behind the axis do not fill them

// An associative operation.
struct Fold {
  Tensor (*identity)(const Tensor& like);
  Tensor (*reduce)(const Tensor& x, int64_t axis);  // the axis is dropped
  Tensor (*combine)(const Tensor& a, const Tensor& b);
};

template <ReduceKind kind>
Tensor Identity(const Tensor& like) {
  Graph& g = like.builder()->graph();
  return {like.builder(), g.ConstWord(like.dtype(), ReduceIdentity(kind, like.dtype()))};
}

constexpr Fold kSum = {Identity<ReduceKind::kAdd>,
                       [](const Tensor& x, int64_t axis) { return x.Sum({axis}); },
                       [](const Tensor& a, const Tensor& b) { return a + b; }};
constexpr Fold kProduct = {Identity<ReduceKind::kMul>,
                           [](const Tensor& x, int64_t axis) { return x.Prod({axis}); },
                           [](const Tensor& a, const Tensor& b) { return a * b; }};
constexpr Fold kMaximum = {Identity<ReduceKind::kMax>,
                           [](const Tensor& x, int64_t axis) { return x.Max({axis}); },
                           [](const Tensor& a, const Tensor& b) { return a.Maximum(b); }};
constexpr Fold kLogSum = {Identity<ReduceKind::kMax>,
                          [](const Tensor& x, int64_t axis) { return x.LogSumExp({axis}); },
                          [](const Tensor& a, const Tensor& b) { return a.LogAddExp(b); }};

// [before, blocks, k, after]: element i of a block reduced with those before it.
Tensor WithinBlocks(const Tensor& x, const Fold& fold) {
  const int64_t k = x.dim(2);
  const Tensor position = x.builder()->Iota(DType::kInt32, k);
  const Tensor before = position.Reshape({1, k, 1}).Le(position.Reshape({k, 1, 1}));
  return fold.reduce(before.Where(x.Unsqueeze(2), fold.identity(x)), 3);
}

// [before, n, after] one element further on, the identity in front.
Tensor Shifted(const Tensor& x, const Fold& fold) {
  const int64_t n = x.dim(1);
  const Tensor first = x.builder()->Iota(DType::kInt32, n).Eq(0).Reshape({n, 1});
  return first.Where(fold.identity(x), x.Pad({0, 0, 1, 0, 0, 0}).Slice(1, 0, n));
}

// Of [before, n, after] along its middle axis.
Tensor Scan(const Tensor& x, const Fold& fold) {
  if (!x.valid() || x.size() == 0) return x;
  const Dim before = x.dims()[0], after = x.dims()[2];
  const int64_t block = x.dim(2) < kLanes ? kAlongAxis : kAcrossAxis;
  std::vector<Tensor> levels;
  Tensor top = x;
  while (top.valid() && top.dim(1) > block) {
    const int64_t blocks = CeilDiv(top.dim(1), block);
    // What is added belongs to the last block, which no other one comes after.
    const Tensor padded = top.Pad({0, 0, 0, blocks * block - top.dim(1), 0, 0});
    levels.push_back(padded.Reshape({before, blocks, block, after}));
    top = fold.reduce(levels.back(), 2);
  }
  if (!top.valid()) return top;
  Tensor out = WithinBlocks(top.Unsqueeze(1), fold).Reshape(top.dims());
  for (size_t i = levels.size(); i-- > 0;) {
    const Tensor& blocks = levels[i];
    const Tensor carried = Shifted(out.Slice(1, 0, blocks.dim(1)), fold).Unsqueeze(2);
    out = fold.combine(WithinBlocks(blocks, fold), carried)
              .Reshape({before, blocks.dim(1) * block, after});
  }
  return out.Slice(1, 0, x.dim(1));
}

Tensor ScanAxis(std::string_view name, const Tensor& x, int64_t axis, const Fold& fold) {
  if (!x.valid()) return x;
  const absl::StatusOr<Middle> middle = MiddleOf(name, x, axis);
  return middle.ok() ? middle->Back(Scan(middle->cube, fold)) : x.builder()->Fail(middle.status());
}

// A new maximum is an element above all before it, or the first NaN; the last position of one is
// that of the maximum so far.
Tensor PositionsOfMaxima(const Tensor& x) {
  if (x.size() == 0) return x.Cast(DType::kInt32);
  const Tensor key = IsBool(x.dtype()) ? x.Cast(DType::kUInt8) : x.Detach();
  const Tensor before = Shifted(Scan(key, kMaximum), kMaximum);
  Tensor higher = before.Lt(key);
  if (IsFloat(key.dtype())) higher = higher.Or(key.Ne(key).And(before.Eq(before)));
  const Tensor position = x.builder()->Iota(DType::kInt32, x.dim(1)).Reshape({x.dim(1), 1});
  return Scan(higher.Where(position, 0), kMaximum);
}

}  // namespace

Tensor Tensor::CumSum(int64_t axis) const {
  const auto scan = [&](const Tensor& x) { return ScanAxis("cumsum", x, axis, kSum); };
  return IsFloat(dtype()) ? Composed(*this, scan) : scan(Cast(SumType(dtype())));
}

Tensor Tensor::CumProd(int64_t axis) const {
  const auto scan = [&](const Tensor& x) { return ScanAxis("cumprod", x, axis, kProduct); };
  return IsFloat(dtype()) ? Composed(*this, scan) : scan(Cast(SumType(dtype())));
}

Tensor Tensor::LogCumSumExp(int64_t axis) const {
  return Composed(*this,
                  [&](const Tensor& x) { return ScanAxis("logcumsumexp", x, axis, kLogSum); });
}

std::pair<Tensor, Tensor> Tensor::CumExtreme(std::string_view name, int64_t axis,
                                             bool largest) const {
  if (!valid()) return {*this, *this};
  const absl::StatusOr<Middle> middle = MiddleOf(name, *this, axis);
  if (!middle.ok()) {
    const Tensor failed = builder_->Fail(middle.status());
    return {failed, failed};
  }
  const Tensor& x = middle->cube;
  const Tensor key = largest ? x : IsFloat(dtype()) ? -x : Complement(x);
  const Tensor positions = middle->Back(PositionsOfMaxima(key));
  return {TakeAlong(axis, positions), positions};
}

std::pair<Tensor, Tensor> Tensor::CumMax(int64_t axis) const {
  return CumExtreme("cummax", axis, true);
}
std::pair<Tensor, Tensor> Tensor::CumMin(int64_t axis) const {
  return CumExtreme("cummin", axis, false);
}

}  // namespace telegrad
