// Products and convolutions: which lanes they use, and which of their operands are packed.
#include "tests/conformance/kernel_form.h"

namespace telegrad {
namespace {

// Many channels of images whose rows are short: rows_ is the height, columns_ the width.
class Images : public KernelForm {
 protected:
  static constexpr int64_t kChannels = 128, kInputs = 5, kMinShared = 7;

  // By MULACCs that a target with vectors of 64 bytes executes, for each that is needed.
  void ExpectFewLanes(UOp root, double products, double most) {
    const auto program = Lowered(g_.Make(Op::kSink, {root}), MadeUp(64));
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_LE(program->flops, 2 * products * most) << Print(*program);
    EXPECT_GE(program->iterations, kMinShared) << "there is enough for threads to share";
  }
};

// A window of 3 x 3 with zeros around the image.
TEST_P(Images, Convolution) {
  const int64_t pixels = rows_ * columns_;
  const UOp o = Loop(kChannels), y = Loop(rows_), x = Loop(columns_);
  const UOp c = Folded(kInputs), ky = Folded(3), kx = Folded(3);
  const UOp out = Param(0, kChannels * pixels), in = Param(1, kInputs * pixels);
  const UOp weights = Param(2, kChannels * kInputs * 9);
  const UOp row = Add(Add(y, ky), g_.Index(-1)), column = Add(Add(x, kx), g_.Index(-1));
  const auto within = [&](UOp at, int64_t size) {
    return g_.Make(Op::kAnd, {g_.Make(Op::kCmpLt, {g_.Index(-1), at}),
                              g_.Make(Op::kCmpLt, {at, g_.Index(size)})});
  };
  const auto flat = [&](UOp i, int64_t size, UOp j) {
    return Add(g_.Make(Op::kMul, {i, g_.Index(size)}), j);
  };
  const UOp gate = g_.Make(Op::kAnd, {within(row, rows_), within(column, columns_)});
  const UOp at = flat(flat(c, rows_, row), columns_, column);
  const UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {in, at, gate})});
  const UOp weight = Load(weights, flat(flat(flat(o, kInputs, c), 3, ky), 3, kx));
  const UOp sum = Reduce(ReduceKind::kAdd, Mul(value, weight), {c, ky, kx});
  const UOp root = End(Store(out, flat(flat(o, rows_, y), columns_, x), sum), {o, y, x});
  Expect({root}, {[&](int64_t i) {
           const int64_t channel = i / pixels, r = i % pixels / columns_, s = i % columns_;
           double total = 0;
           for (int64_t k = 0; k < kInputs * 9; ++k) {
             const int64_t v = r + k % 9 / 3 - 1, u = s + k % 3 - 1;
             if (v < 0 || v >= rows_ || u < 0 || u >= columns_) continue;
             total += double{Input(1, k / 9 * pixels + v * columns_ + u)} *
                      Input(2, channel * kInputs * 9 + k);
           }
           return total;
         }});
  if (HasFatalFailure()) return;
  ExpectFewLanes(root, static_cast<double>(kChannels * pixels * kInputs * 9), 1.03);
}

// A product of matrices, of which the last vector of a row is narrow.
TEST_P(Images, Product) {
  const int64_t pixels = rows_ * columns_, inner = 40;
  const UOp o = Loop(kChannels), p = Loop(pixels), k = Folded(inner);
  const UOp out = Param(0, kChannels * pixels), x = Param(1, inner * pixels);
  const UOp weights = Param(2, kChannels * inner);
  const UOp value = Load(x, Add(g_.Make(Op::kMul, {k, g_.Index(pixels)}), p));
  const UOp weight = Load(weights, Add(g_.Make(Op::kMul, {o, g_.Index(inner)}), k));
  const UOp to = Add(g_.Make(Op::kMul, {o, g_.Index(pixels)}), p);
  const UOp root = End(Store(out, to, Sum(Mul(value, weight), k)), {o, p});
  Expect({root}, {[&](int64_t i) {
           double sum = 0;
           for (int64_t j = 0; j < inner; ++j) {
             sum += double{Input(1, j * pixels + i % pixels)} * Input(2, i / pixels * inner + j);
           }
           return sum;
         }});
}

INSTANTIATE_TEST_SUITE_P(Sizes, Images, ::testing::Values(std::pair(7, 7), std::pair(14, 14)),
                         [](const auto& info) {
                           return StrCat(info.param.first, "x", info.param.second);
                         });

class LargeKernel : public KernelForm {};

// A matrix product whose panels are worth a packed copy, also where they come with gates and steps.
TEST_P(LargeKernel, ProductThroughPackedPanels) {
  for (int64_t step : {1, 2}) {
    const int64_t inner = 300;
    const UOp r = Loop(rows_), c = Loop(columns_), k = Folded(inner);
    const UOp out = Matrix(0), a = Param(1, rows_ * inner);
    const UOp b = Param(2, inner * columns_ * step);
    const UOp column = g_.Make(Op::kMul, {c, g_.Index(step)});
    const UOp at = Add(g_.Make(Op::kMul, {k, g_.Index(columns_ * step)}), column);
    const UOp gate = g_.Make(Op::kCmpLt, {g_.Index(2), column});
    const UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {b, at, gate})});
    const UOp x = Load(a, Add(g_.Make(Op::kMul, {r, g_.Index(inner)}), k));
    Expect({End(Store(out, At(r, c), Sum(Mul(x, value), k)), {r, c})}, {[&](int64_t i) {
             const int64_t row = i / columns_, at_column = i % columns_ * step;
             double sum = 0;
             for (int64_t j = 0; j < inner && at_column > 2; ++j) {
               sum += double{Input(1, row * inner + j)} * Input(2, j * columns_ * step + at_column);
             }
             return sum;
           }});
    if (HasFatalFailure()) return;
    const auto program = Lowered(
        g_.Make(Op::kSink, {End(Store(out, At(r, c), Sum(Mul(x, value), k)), {r, c})}), MadeUp(64));
    ASSERT_TRUE(program.ok());
    EXPECT_TRUE(std::ranges::any_of(program->order,
                                    [&](uint32_t id) {
                                      const UOp u = program->graph->at(id);
                                      return u.is(Op::kBuffer) && u.elements() > 1024;
                                    }))
        << "no packed copy\n"
        << Print(*program);
  }
}

// Products over the taps of a window, nothing where they reach beyond the image. The conditions of
// some copies of the packed panel fold, so that these depend on fewer loops than the others.
TEST_P(LargeKernel, ConditionalProductsThroughAPackedPanel) {
  constexpr int64_t kImages = 24, kChannels = 32, kRows = 10, kFolded = 64, kTaps = 3, kInside = 8;
  const UOp n = Loop(kImages), c = Loop(kChannels), row = Loop(kRows), column = Loop(kRows);
  const UOp down = Folded(kTaps), right = Folded(kTaps), k = Folded(kFolded);
  const auto times = [&](UOp x, int64_t factor) { return Mul(x, g_.Index(factor)); };
  const UOp out = Param(0, kImages * kChannels * kRows * kRows);
  const UOp x = Param(1, kImages * kFolded * kInside * kInside);
  const UOp w = Param(2, kFolded * kChannels * kTaps * kTaps);
  UOp inside = g_.True();
  for (const auto& [place, tap] : {std::pair(row, down), std::pair(column, right)}) {
    const UOp at = Add(place, times(tap, -1)), back = Add(times(place, -1), tap);
    inside = g_.Make(Op::kAnd, {inside, g_.Make(Op::kCmpLt, {at, g_.Index(kInside)})});
    inside = g_.Make(Op::kAnd, {inside, g_.Make(Op::kCmpLt, {back, g_.Index(1)})});
  }
  const UOp image = Add(Add(times(n, kFolded * 64), times(k, 64)), times(row, kInside));
  const UOp seen = Add(Add(image, times(down, -kInside)), Add(column, times(right, -1)));
  const UOp weight = Add(Add(times(k, kChannels * 9), times(c, 9)), Add(times(down, 3), right));
  const UOp value = Mul(g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {w, weight, inside})}),
                        g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {x, seen, inside})}));
  const UOp sum =
      Reduce(ReduceKind::kAdd, g_.Make(Op::kWhere, {inside, value, Float(0)}), {down, right, k});
  const UOp to = Add(Add(times(n, kChannels * 100), times(c, 100)), Add(times(row, 10), column));
  const UOp sink = g_.Make(Op::kSink, {End(Store(out, to, sum), {n, c, row, column})});
  Target target = MadeUp(64);
  target.cache_bytes = Target().cache_bytes;  // has room for the panel
  const auto program = Lowered(sink, target);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<Floats> arguments = Arguments();
  Interpret(*program, &arguments);
  Compare(arguments, {[&](int64_t i) {
            double want = 0;
            for (int64_t j = 0; j < kTaps * kTaps * kFolded; ++j) {
              const int64_t r = i / 10 % 10 - j / kTaps % kTaps, s = i % 10 - j % kTaps;
              if (r < 0 || r >= kInside || s < 0 || s >= kInside) continue;
              const int64_t f = j / 9;
              want += double{Input(2, (f * kChannels + i / 100 % kChannels) * 9 + j % 9)} *
                      Input(1, (i / 100 / kChannels * kFolded + f) * 64 + r * kInside + s);
            }
            return want;
          }},
          *program);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LargeKernel, ::testing::Values(std::pair(98, 300)),
                         [](const auto&) { return "98x300"; });

}  // namespace
}  // namespace telegrad
