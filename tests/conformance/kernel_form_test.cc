// Kernels of every form that lowering accepts: several stores, reductions beside and before each
// other, nests that read what earlier ones wrote.
#include "tests/conformance/kernel_form.h"

namespace telegrad {
namespace {

TEST_P(KernelForm, SeveralStores) {
  const UOp r = Loop(rows_), c = Loop(columns_), at = At(r, c);
  const UOp o0 = Matrix(0), o1 = Matrix(1), a = Load(Matrix(2), at), b = Load(Matrix(3), at);
  const UOp sum = Add(a, b);
  Expect({End(Store(o0, at, Add(sum, Float(2))), {r, c}), End(Store(o1, at, Mul(sum, a)), {r, c})},
         {[](int64_t i) { return Input(2, i) + Input(3, i) + 2.0; },
          [](int64_t i) { return (double{Input(2, i)} + Input(3, i)) * Input(2, i); }});
}

TEST_P(KernelForm, SoftmaxOfRows) {
  const UOp r = Loop(rows_), c = Loop(columns_), c1 = Folded(columns_), c2 = Folded(columns_);
  const UOp out = Matrix(0), x = Matrix(1);
  const UOp max = Reduce(ReduceKind::kMax, Load(x, At(r, c1)), {c1});
  const UOp sum = Sum(Exp2(Sub(Load(x, At(r, c2)), max)), c2);
  const UOp value = Mul(Exp2(Sub(Load(x, At(r, c)), max)), Recip(sum));
  Expect({End(Store(out, At(r, c), value), {r, c})}, {[&](int64_t i) { return SoftmaxAt(i); }});
}

TEST_P(KernelForm, OneRangeForEverythingOfARow) {
  const UOp r = Loop(rows_), c = Folded(columns_);
  const UOp out = Matrix(0), x = Load(Matrix(1), At(r, c));
  const UOp max = Reduce(ReduceKind::kMax, x, {c});
  const UOp sum = Sum(Exp2(Sub(x, max)), c);
  Expect({End(Store(out, At(r, c), Mul(Exp2(Sub(x, max)), Recip(sum))), {r, c})},
         {[&](int64_t i) { return SoftmaxAt(i); }});
}

TEST_P(KernelForm, SoftmaxOfColumns) {
  const UOp r = Loop(rows_), c = Loop(columns_), r1 = Folded(rows_), r2 = Folded(rows_);
  const UOp out = Matrix(0), x = Matrix(1);
  const UOp max = Reduce(ReduceKind::kMax, Load(x, At(r1, c)), {r1});
  const UOp sum = Sum(Exp2(Sub(Load(x, At(r2, c)), max)), r2);
  const UOp value = Mul(Exp2(Sub(Load(x, At(r, c)), max)), Recip(sum));
  Expect({End(Store(out, At(r, c), value), {r, c})}, {[&](int64_t i) {
           const int64_t column = i % columns_;
           double max_of = -1e30, sum_of = 0;
           for (int64_t row = 0; row < rows_; ++row) {
             max_of = std::max<double>(max_of, X(1, row, column));
           }
           for (int64_t row = 0; row < rows_; ++row) {
             sum_of += std::exp2(X(1, row, column) - max_of);
           }
           return std::exp2(Input(1, i) - max_of) / sum_of;
         }});
}

// Layer norm, which also stores the mean and the variance of each row: one nest in the others'
// outermost loop.
TEST_P(KernelForm, LayerNormWithItsMoments) {
  const UOp r = Loop(rows_), c = Loop(columns_), c1 = Folded(columns_), c2 = Folded(columns_);
  const UOp out = Matrix(0), means = Param(1, rows_), variances = Param(2, rows_), x = Matrix(3);
  const UOp n = Float(1.0 / static_cast<double>(columns_));
  const UOp mean = Mul(Sum(Load(x, At(r, c1)), c1), n);
  const UOp centered = Sub(Load(x, At(r, c2)), mean);
  const UOp variance = Mul(Sum(Mul(centered, centered), c2), n);
  const UOp scale = Recip(g_.Make(Op::kSqrt, {Add(variance, Float(0.5))}));
  const UOp value = Mul(Sub(Load(x, At(r, c)), mean), scale);
  const auto mean_of = [&](int64_t row) {
    return OverColumns([&](int64_t k) { return X(3, row, k); }) / static_cast<double>(columns_);
  };
  const auto variance_of = [&](int64_t row) {
    const double m = mean_of(row);
    return OverColumns([&](int64_t k) { return (X(3, row, k) - m) * (X(3, row, k) - m); }) /
           static_cast<double>(columns_);
  };
  Expect({End(Store(means, r, mean), {r}), End(End(Store(out, At(r, c), value), {c}), {r}),
          End(Store(variances, r, variance), {r})},
         {[&](int64_t i) {
            const int64_t row = i / columns_;
            return (Input(3, i) - mean_of(row)) / std::sqrt(variance_of(row) + 0.5);
          },
          mean_of, variance_of});
}

// Two sums in one loop, as they share their range, and a third one that needs the first.
TEST_P(KernelForm, SumsOverOneRange) {
  const UOp r = Loop(rows_), c = Folded(columns_);
  const UOp out = Param(0, rows_), x = Load(Matrix(1), At(r, c)), y = Load(Matrix(2), At(r, c));
  const UOp first = Sum(x, c), second = Sum(Mul(x, y), c), third = Sum(Mul(y, first), c);
  Expect({End(Store(out, r, Add(Mul(first, second), third)), {r})}, {[&](int64_t row) {
           const double f = OverColumns([&](int64_t k) { return X(1, row, k); });
           const double s = OverColumns([&](int64_t k) { return X(1, row, k) * X(2, row, k); });
           return f * s + OverColumns([&](int64_t k) { return X(2, row, k) * f; });
         }});
}

// The sum of two matrix products with different inner sizes.
TEST_P(KernelForm, TwoProductsSideBySide) {
  const int64_t k1 = 12, k2 = 5;
  const UOp r = Loop(rows_), c = Loop(columns_), i = Folded(k1), j = Folded(k2);
  const UOp out = Matrix(0), a = Param(1, rows_ * k1), b = Param(2, k1 * columns_);
  const UOp p = Param(3, rows_ * k2), q = Param(4, k2 * columns_);
  const UOp first = Sum(Mul(Load(a, Add(Mul(r, g_.Index(k1)), i)), Load(b, At(i, c))), i);
  const UOp second = Sum(Mul(Load(p, Add(Mul(r, g_.Index(k2)), j)), Load(q, At(j, c))), j);
  const UOp value = g_.Make(Op::kMax, {Add(first, second), Float(0)});
  Expect({End(Store(out, At(r, c), value), {r, c})}, {[&](int64_t at) {
           const int64_t row = at / columns_, column = at % columns_;
           double sum = 0;
           for (int64_t k = 0; k < k1; ++k) {
             sum += Input(1, row * k1 + k) * Input(2, k * columns_ + column);
           }
           for (int64_t k = 0; k < k2; ++k) {
             sum += Input(3, row * k2 + k) * Input(4, k * columns_ + column);
           }
           return std::max(sum, 0.0);
         }});
}

// log2(sum of exp2(x - max)) + max - x[label], with a label that is data.
TEST_P(KernelForm, CrossEntropy) {
  const UOp r = Loop(rows_), c1 = Folded(columns_), c2 = Folded(columns_);
  const UOp out = Param(0, rows_), x = Matrix(1);
  const UOp label = g_.Make(Op::kCast, DType::kInt64, {Load(Param(2, rows_), r)});
  const UOp max = Reduce(ReduceKind::kMax, Load(x, At(r, c1)), {c1});
  const UOp sum = Sum(Exp2(Sub(Load(x, At(r, c2)), max)), c2);
  const UOp loss = Sub(Add(g_.Make(Op::kLog2, {sum}), max), Load(x, At(r, label)));
  Expect({End(Store(out, r, loss), {r})}, {[&](int64_t row) {
           const double m = RowMax(1, row);
           const double s = OverColumns([&](int64_t c) { return std::exp2(X(1, row, c) - m); });
           const int64_t at = row * columns_ + static_cast<int64_t>(Input(2, row));
           // Outside of the buffer it reads 0.
           const bool inside = at >= 0 && at < rows_ * columns_;
           return std::log2(s) + m - (inside ? Input(1, at) : 0);
         }});
}

// The exponentials of a row are stored once, and their sum and the result read from there.
TEST_P(KernelForm, StagedInAnArgument) {
  const UOp r = Loop(rows_), c = Loop(columns_), inner = Loop(columns_), c1 = Folded(columns_),
            c2 = Folded(columns_);
  const UOp out = Matrix(0), stage = Matrix(1), x = Matrix(2);
  const UOp max = Reduce(ReduceKind::kMax, Load(x, At(r, c1)), {c1});
  const UOp fill = End(Store(stage, At(r, inner), Exp2(Sub(Load(x, At(r, inner)), max))), {inner});
  const UOp staged = g_.Make(Op::kAfter, {stage, fill});
  const UOp sum = Sum(Load(staged, At(r, c2)), c2);
  const UOp value = Mul(Load(staged, At(r, c)), Recip(sum));
  const auto exponential = [&](int64_t i) {
    return std::exp2(Input(2, i) - RowMax(2, i / columns_));
  };
  Expect({End(Store(out, At(r, c), value), {r, c})},
         {[&](int64_t i) {
            const int64_t row = i / columns_;
            return exponential(i) /
                   OverColumns([&](int64_t k) { return exponential(row * columns_ + k); });
          },
          exponential});
}

// A fold of what does not depend on its range, next to one that does.
TEST_P(KernelForm, SumsOfTheSame) {
  const UOp r = Loop(rows_), c = Folded(columns_), c1 = Folded(columns_);
  const UOp out = Param(0, rows_), x = Load(Param(1, rows_), r);
  const UOp value = Add(Sum(x, c), Sum(Mul(x, Load(Matrix(2), At(r, c1))), c1));
  Expect({End(Store(out, r, value), {r})}, {[&](int64_t row) {
           const double one = Input(1, row);
           return one * static_cast<double>(columns_) +
                  OverColumns([&](int64_t k) { return one * X(2, row, k); });
         }});
}

// A sum over sums, each of which depends on the outer one's range; all are peeled.
TEST_P(KernelForm, SumsInsideOfSums) {
  const UOp r = Loop(rows_), c = Folded(columns_), c1 = Folded(columns_);
  const UOp out = Param(0, rows_), x = Matrix(1), y = Param(2, columns_ * columns_);
  const UOp inner = Sum(Mul(Load(y, At(c, c1)), Load(x, At(r, c1))), c1);
  const UOp value = Sum(Mul(inner, Load(x, At(r, c))), c);
  Expect({End(Store(out, r, value), {r})}, {[&](int64_t row) {
           return OverColumns([&](int64_t j) {
             return X(1, row, j) *
                    OverColumns([&](int64_t k) { return double{X(2, j, k)} * X(1, row, k); });
           });
         }});
}

// So many ranges that there is no room to split them all.
TEST_P(KernelForm, ManyFolds) {
  constexpr int kFolds = 50;
  const UOp r = Loop(rows_), out = Param(0, rows_), x = Matrix(1);
  UOp total = Float(0);
  for (int i = 0; i < kFolds; ++i) {
    const UOp c = Folded(columns_);
    total = Add(total, Sum(Mul(Load(x, At(r, c)), Float(1 + i % 3)), c));
  }
  Expect({End(Store(out, r, total), {r})}, {[&](int64_t row) {
           double factors = 0;
           for (int i = 0; i < kFolds; ++i) factors += 1 + i % 3;
           return factors * OverColumns([&](int64_t k) { return X(1, row, k); });
         }});
}

// Nothing but the whole: sums over all rows, of which the columns are the lanes.
TEST_P(KernelForm, ColumnSumsAndProducts) {
  const UOp c = Loop(columns_), r1 = Folded(rows_), r2 = Folded(rows_);
  const UOp sums = Param(0, columns_), most = Param(1, columns_), x = Matrix(2);
  Expect({End(Store(sums, c, Sum(Load(x, At(r1, c)), r1)), {c}),
          End(Store(most, c, Reduce(ReduceKind::kMax, Load(x, At(r2, c)), {r2})), {c})},
         {[&](int64_t column) {
            double sum = 0;
            for (int64_t r = 0; r < rows_; ++r) sum += X(2, r, column);
            return sum;
          },
          [&](int64_t column) {
            double max = -1e30;
            for (int64_t r = 0; r < rows_; ++r) max = std::max<double>(max, X(2, r, column));
            return max;
          }});
}

// Lanes that are two to five elements apart, of which some lie in front of the buffer.
TEST_P(KernelForm, StepsOverTheInput) {
  for (int64_t step : {2, 3, 4, 5}) {
    const UOp r = Loop(rows_), c = Loop(columns_), k = Folded(3);
    const UOp out = Matrix(0), x = Param(1, rows_ * columns_ * step);
    const UOp column = Add(Add(g_.Make(Op::kMul, {c, g_.Index(step)}), k), g_.Index(-1));
    const UOp inside =
        g_.Make(Op::kAnd, {g_.Make(Op::kCmpLt, {g_.Index(-1), column}),
                           g_.Make(Op::kCmpLt, {column, g_.Index(columns_ * step)})});
    const UOp at = Add(g_.Make(Op::kMul, {r, g_.Index(columns_ * step)}), column);
    const UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {x, at, inside})});
    Expect({End(Store(out, At(r, c), Sum(value, k)), {r, c})}, {[&](int64_t i) {
             const int64_t row = i / columns_, first = i % columns_ * step - 1;
             double sum = 0;
             for (int64_t j = first; j < first + 3; ++j) {
               if (j >= 0 && j < columns_ * step) sum += Input(1, row * columns_ * step + j);
             }
             return sum;
           }});
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, KernelForm,
                         ::testing::Values(std::pair(8, 64), std::pair(5, 7), std::pair(3, 100),
                                           std::pair(1, 37), std::pair(48, 1), std::pair(6, 131)),
                         [](const auto& info) {
                           return StrCat(info.param.first, "x", info.param.second);
                         });

}  // namespace
}  // namespace telegrad
