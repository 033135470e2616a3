#include <limits>
#include <vector>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/step_rows.h"
#include "engine/frontend/onnx/suppression.h"

namespace telegrad::onnx {

// All rounds are the same kernels, which are compiled once.
Picks PickOneByOne(Builder& b, const ScoredBoxes& all, int64_t most) {
  constexpr double kGone = -std::numeric_limits<double>::infinity();
  const Dim batch = all.batch();
  const int64_t n = all.n();
  const Tensor number = b.Iota(DType::kInt32, n);
  // [batch * n] to be picked from, [batch, 1, n] for all classes.
  const Boxes flat = all.boxes.Each([](const Tensor& t) { return t.Contiguous().Flatten(); });
  const Boxes each = flat.Each([&](const Tensor& t) { return t.Reshape(Dims{batch, 1, n}); });
  const Tensor first = (b.Iota(DType::kInt32, batch) * n).Reshape(Dims{batch, 1, 1});
  // No score of what is left is as low as that of what is gone; NaN counts as the largest.
  const Tensor least = all.scores.Maximum(std::numeric_limits<float>::lowest());
  const Tensor score = all.scores.Eq(all.scores).Where(least, -kGone);
  Tensor left = all.eligible.Where(score, kGone).Contiguous();
  std::vector<Tensor> picks;
  for (int64_t i = 0; i < most; ++i) {
    const Tensor best = left.ArgMax(2, true).Cast(DType::kInt32);
    const Tensor any = left.Max({2}, true).Gt(kGone);
    const Tensor pick = any.Where(best, -1).Contiguous();  // [batch, classes, 1]
    picks.push_back(pick.Reshape(Dims{all.rows()}));
    if (i + 1 == most) break;
    const Boxes mine =
        flat.Each([&](const Tensor& t) { return t.Gather(first + pick.Maximum(0)); });
    const Tensor ends = Overlaps(each, mine, all.threshold).Or(number.Eq(pick));
    left = ends.Where(kGone, left).Contiguous();
  }
  const Tensor out = StackSteps(picks, 1).Contiguous();
  return {out.Ge(0), out.Cast(DType::kInt64)};
}

}  // namespace telegrad::onnx
