// Graphs that look like an attention and are none that can be computed in blocks of keys: they have
// the evaluator's results, and the scheduler does not count on blocks.
#include <functional>

#include "engine/base/strings.h"
#include "tests/conformance/attention_cases.h"

namespace telegrad::testing {
namespace {

// What a block at a time cannot add up: values that are computed from the maximum, from the sum, or
// from a weighted sum of the same row, as those of a gradient are; a number that is another for
// each key, or for each row, in place of the maximum; and a divisor of each weight.
TEST_F(AttentionTest, AgreesWhereTheResultsOfARowAreNeededBefore) {
  using Sum = std::function<Tensor(const Tensor& s, const Tensor& v, const Tensor& z, Builder* b)>;
  const auto by_row = [](const Tensor& w, const Tensor& v, const Tensor& of_row) {
    const Tensor values = v.Transpose(-1, -2).Unsqueeze(0) * of_row.Unsqueeze(-1);
    return (w.Unsqueeze(1) * values).Sum({-1});
  };
  const auto most = [](const Tensor& s) { return s.Max({-1}, true); };
  const auto shifted = [&](const Tensor& s, const Tensor& v, const Tensor& where) {
    const Tensor w = (s - where.Where(most(s), 1.0)).Exp2();
    return w.MatMul(v) / w.Sum({-1}, true);
  };
  const Sum sums[] = {
      [&](const Tensor& s, const Tensor& v, const Tensor&, Builder*) {
        return by_row((s - most(s)).Exp2(), v, most(s));
      },
      [&](const Tensor& s, const Tensor& v, const Tensor&, Builder*) {
        const Tensor w = (s - most(s)).Exp2();
        return by_row(w, v, w.Sum({-1}, true));
      },
      [&](const Tensor& s, const Tensor& v, const Tensor& z, Builder*) {
        const Tensor w = s.Softmax();
        return by_row(w, v, (w * z.Unsqueeze(0)).Sum({-1}, true));
      },
      [&](const Tensor& s, const Tensor& v, const Tensor& z, Builder*) {
        const Tensor w = s.Softmax();
        return (w * (z.Unsqueeze(0) - (w * z.Unsqueeze(0)).Sum({-1}, true))).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, const Tensor&, Builder* b) {
        return shifted(s, v, b->Iota(DType::kInt32, s.shape()[1]).Lt(20));
      },
      [&](const Tensor& s, const Tensor& v, const Tensor&, Builder* b) {
        return shifted(s, v, b->Iota(DType::kInt32, s.shape()[0]).Unsqueeze(-1).Lt(70));
      },
      [&](const Tensor& s, const Tensor& v, const Tensor& z, Builder*) {
        const Tensor w = (s - most(s)).Exp2();
        return (w / (z * z + 1.0)).MatMul(v) / w.Sum({-1}, true);
      },
  };
  int index = 0;
  for (const Sum& sum : sums) {
    for (const int64_t keys : {64, 197}) {
      SCOPED_TRACE(StrCat(index, ", ", keys, " keys"));
      Builder b;
      const Tensor q = b.Param(DType::kFloat32, {128, 32}, "q");
      const Tensor k = b.Param(DType::kFloat32, {keys, 32}, "k");
      const Tensor v = b.Param(DType::kFloat32, {keys, 32}, "v");
      const Tensor z = b.Param(DType::kFloat32, {keys}, "z");
      b.Output(sum(q.MatMul(k.Transpose(-1, -2)) * 0.2, v, z, &b), "y");
      const absl::StatusOr<Plan> plan = b.Finish();
      ASSERT_TRUE(plan.ok()) << plan.status();
      std::mt19937 random(11);
      const Slots operands{Floats(128 * 32, random), Floats(keys * 32, random),
                           Floats(keys * 32, random), Floats(keys, random),
                           std::vector<uint8_t>(size_t{128} * 32 * 4)};
      ExpectEvaluated(Root(plan), operands, 4);
    }
    ++index;
  }
}

// The scheduler counts on lowering to reduce rows in blocks: what lowering does not recognize must
// not be kept for so many rows. A program has room for two megabytes.
TEST_F(AttentionTest, KeepsRowsThatAreNotReducedInBlocksWithinItsMemory) {
  constexpr int64_t kMost = int64_t{2} << 20;
  using Change = std::function<Tensor(const Tensor& scores, const Tensor& v, Builder* b)>;
  const auto softmax = [](const Tensor& x) { return x.Softmax(); };
  const Change changes[] = {
      [&](const Tensor& s, const Tensor& v, Builder*) { return softmax(s).MatMul(v); },
      [&](const Tensor& s, const Tensor& v, Builder* b) {
        b->Output(s.Sum({-1}), "sums");  // of the scores themselves
        return softmax(s).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder* b) {
        b->Output(softmax(s), "weights");
        return softmax(s).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor w = softmax(s);
        return (w * w).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor w = (s - (s * -1.0).Max({-1}, true)).Exp();
        return (w / w.Sum({-1}, true)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor w = (s - s.Max({-1}, true)).Exp();
        return (w * s / w.Sum({-1}, true)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor w = (s - s.Max({-2}, true)).Exp();
        return (w / w.Sum({-2}, true)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        return (softmax(s) - softmax(s * 2.0)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) { return softmax(softmax(s)).MatMul(v); },
      [&](const Tensor& s, const Tensor& v, Builder*) { return softmax(s).Flip({-1}).MatMul(v); },
      [&](const Tensor& s, const Tensor& v, Builder*) { return softmax(s.Flip({-1})).MatMul(v); },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        return softmax(s).Transpose(-1, -2).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        return softmax(s).Cast(DType::kFloat16).MatMul(v.Cast(DType::kFloat16));
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        return softmax(s.Cast(DType::kFloat16)).Cast(DType::kFloat32).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor w = s.Exp();
        return (w / w.Sum({-1}, true)).MatMul(v);
      },
      // Weights by the scale of another sum, by another shift, and by one that the sum decides.
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor less = s - s.Max({-1}, true);
        return ((less * 1.5).Exp2() / (less * 2.5).Exp2().Sum({-1}, true)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor most = s.Max({-1}, true);
        const Tensor w = (s - most.Gt(1.0).Where(most, 1.0)).Exp2();
        return (w / (s - most).Exp2().Sum({-1}, true)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor most = s.Max({-1}, true);
        const Tensor sum = (s - most).Exp2().Sum({-1}, true);
        const Tensor w = (s - sum.Gt(9.0).Where(most, 1.0)).Exp2();
        return (w / w.Sum({-1}, true)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor w = ((s - s.Max({-1}, true)) * 2.5).Exp();  // scaled twice
        return (w / w.Sum({-1}, true)).MatMul(v);
      },
      // Values that are computed from the row's maximum.
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor most = s.Max({-1}, true), w = (s - most).Exp2();
        const Tensor values = v.Transpose(-1, -2).Unsqueeze(1).Shrink({0, 4, 0, 1, 0, 8, 0, 16384});
        return (w.Unsqueeze(2) * (values + most.Unsqueeze(2))).Sum({-1});
      },
      // Weights of more sums than are looked for.
      [&](const Tensor& s, const Tensor& v, Builder*) {
        const Tensor w = softmax(s);
        Tensor y = w.MatMul(v);
        for (int i = 1; i < 12; ++i) y = y + w.MatMul(v.Flip({0}) * (0.5 + i));
        return y;
      },
      // What is subtracted, or divided by, is another for each key, or for each row.
      [&](const Tensor& s, const Tensor& v, Builder* b) {
        const Tensor most = s.Max({-1}, true);
        const Tensor w = (s - b->Iota(DType::kInt32, 16384).Lt(100).Where(most, 1.0)).Exp2();
        return (w / w.Sum({-1}, true)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder* b) {
        const Tensor most = s.Max({-1}, true);
        const Tensor shown = b->Iota(DType::kInt32, 128).Unsqueeze(-1).Lt(100);
        const Tensor w = (s - shown.Where(most, 1.0)).Exp2();
        return (w / w.Sum({-1}, true)).MatMul(v);
      },
      [&](const Tensor& s, const Tensor& v, Builder* b) {
        const Tensor w = (s - s.Max({-1}, true)).Exp2();
        const Tensor by = b->Iota(DType::kInt32, 16384).Cast(DType::kFloat32) + 2.5;
        return (w / by).MatMul(v) / w.Sum({-1}, true);
      },
      [&](const Tensor& s, const Tensor& v, Builder*) {
        return softmax(s)
            .Reshape({4, 128, 128, 128})
            .Sum({-1})
            .MatMul(v.Shrink({0, 4, 0, 128, 0, 64}));
      },
  };
  int index = 0;
  for (const Change& change : changes) {
    SCOPED_TRACE(index++);
    Builder b;
    const int64_t queries = index == 12 ? 16384 : 128;
    const Tensor q = b.Param(DType::kFloat32, {4, queries, 64}, "q");
    const Tensor k = b.Param(DType::kFloat32, {4, 16384, 64}, "k");
    const Tensor v = b.Param(DType::kFloat32, {4, 16384, 64}, "v");
    b.Output(change(q.MatMul(k.Transpose(-1, -2)) * 0.125, v, &b), "y");
    const absl::StatusOr<Plan> plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(CostOf(Root(plan), Cpu(64)).kept, kMost);
  }
}

}  // namespace
}  // namespace telegrad::testing
