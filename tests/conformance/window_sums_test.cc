// Gradients of pools and convolutions as clients spell them, by the adjoint of each view in turn,
// and what the scheduler makes of them.
#include "engine/schedule/window_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>

#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/legalize.h"
#include "engine/schedule/schedule.h"
#include "engine/types/limits.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

using testing::Slots;

int Count(UOp root, Op op) {
  int n = 0;
  for (const uint32_t id : PostOrder(root)) n += root.graph()->op(id) == op;
  return n;
}

// Of the largest REDUCE: how many elements it reduces.
int64_t Summed(UOp root) {
  int64_t most = 0;
  for (const uint32_t id : PostOrder(root)) {
    const UOp u = root.graph()->at(id);
    if (u.is(Op::kReduce)) most = std::max(most, NumElements(u.src(0).shape()));
  }
  return most;
}

// A view of an image, remembered so that its adjoint can be written down.
class View {
 public:
  View(Graph* g, Shape dims) : g_(*g), dims_{std::move(dims)} {}

  const Shape& dims() const { return dims_.back(); }
  void To(Op op, std::vector<int64_t> arg, Shape dims) {
    ops_.push_back({op, std::move(arg)});
    dims_.push_back(std::move(dims));
  }
  void Reshape(const Shape& dims) { To(Op::kReshape, {dims.begin(), dims.end()}, dims); }
  void Expand(const Shape& dims) { To(Op::kExpand, {dims.begin(), dims.end()}, dims); }
  void Permute(const std::vector<int64_t>& axes) {
    Shape out;
    for (const int64_t a : axes) out.push_back(dims()[static_cast<size_t>(a)]);
    To(Op::kPermute, axes, out);
  }
  // Of one axis: elements from `begin` on, `size` of them.
  void Shrink(size_t axis, int64_t begin, int64_t size) { Cut(Op::kShrink, axis, begin, size); }
  void Pad(size_t axis, int64_t before, int64_t whole) { Cut(Op::kPad, axis, before, whole); }

  // The gradient for the image of one for the view.
  UOp Adjoint(UOp y) const {
    for (size_t i = ops_.size(); i-- > 0;) {
      const auto& [op, arg] = ops_[i];
      const Shape &from = dims_[i], &to = dims_[i + 1];
      switch (op) {
        case Op::kReshape:
          y = g_.Make(Op::kReshape, {y}, from);
          break;
        case Op::kExpand: {
          std::vector<int64_t> axes{static_cast<int64_t>(ReduceKind::kAdd)};
          for (size_t d = 0; d < from.size(); ++d) {
            if (from[d] != to[d]) axes.push_back(static_cast<int64_t>(d));
          }
          if (axes.size() > 1) y = g_.Make(Op::kReduce, {y}, axes);
          break;
        }
        case Op::kPermute: {
          std::vector<int64_t> back(arg.size());
          for (size_t d = 0; d < arg.size(); ++d) {
            back[static_cast<size_t>(arg[d])] = static_cast<int64_t>(d);
          }
          y = g_.Make(Op::kPermute, {y}, back);
          break;
        }
        default: {
          std::vector<int64_t> pairs;
          for (size_t d = 0; d < from.size(); ++d) pairs.insert(pairs.end(), {arg[2 * d], from[d]});
          y = g_.Make(op == Op::kPad ? Op::kShrink : Op::kPad, {y}, pairs);
        }
      }
    }
    return y;
  }

 private:
  void Cut(Op op, size_t axis, int64_t offset, int64_t size) {
    std::vector<int64_t> pairs;
    Shape out = dims();
    for (const int64_t n : out) pairs.insert(pairs.end(), {0, n});
    pairs[2 * axis] = offset;
    out[axis] = pairs[2 * axis + 1] = size;
    To(op, std::move(pairs), std::move(out));
  }

  Graph& g_;
  struct Step {
    Op op;
    std::vector<int64_t> arg;
  };
  std::vector<Step> ops_;
  std::vector<Shape> dims_;  // before each, and after the last
};

struct Window {
  int64_t size, kernel, stride = 1, dilation = 1, before = 0, after = 0;  // before: padding
  int64_t padded() const { return size + before + after; }
  int64_t places() const { return (padded() - dilation * (kernel - 1) - 1) / stride + 1; }
};

// [n, c, rows, columns] as [n, c, places, places, kernel, kernel], as tinygrad's _pool does it:
// rows of copies of the image, each of them one step further; or, where windows do not overlap, a
// reshape.
View Windows(Graph* g, int64_t n, int64_t c, const Window (&w)[2], bool short_form = false) {
  View v(g, {n, c, w[0].size, w[1].size});
  for (size_t d = 0; d < 2; ++d) {
    if (w[d].before + w[d].after > 0) v.Pad(2 + d, w[d].before, w[d].padded());
  }
  const auto axes = [&](std::initializer_list<int64_t> first,
                        std::initializer_list<int64_t> second) {
    Shape out{n, c};
    out.insert(out.end(), first);
    out.insert(out.end(), second);
    return out;
  };
  const bool apart = short_form && w[0].kernel <= w[0].stride && w[1].kernel <= w[1].stride &&
                     w[0].dilation == 1 && w[1].dilation == 1;
  const int64_t p0 = w[0].places(), p1 = w[1].places();
  if (apart) {
    for (size_t d = 0; d < 2; ++d) {
      const int64_t all = w[d].places() * w[d].stride;
      if (all < w[d].padded()) v.Shrink(2 + d, 0, all);
      if (all > w[d].padded()) v.Pad(2 + d, 0, all);
    }
    v.Reshape(axes({p0, w[0].stride}, {p1, w[1].stride}));
    v.Shrink(3, 0, w[0].kernel);
    v.Shrink(5, 0, w[1].kernel);
    v.Permute({0, 1, 2, 4, 3, 5});
    return v;
  }
  int64_t copies[2], row[2];
  for (size_t d = 0; d < 2; ++d) {
    // Enough of them for strides that leave the image.
    const int64_t i = w[d].padded();
    const int64_t factor =
        1 + (w[d].places() * w[d].stride > i - w[d].dilation * (w[d].kernel - 1));
    row[d] = i * factor + w[d].dilation;
    copies[d] = (w[d].kernel * row[d] + i - 1) / i;
  }
  v.Reshape(axes({1, w[0].padded()}, {1, w[1].padded()}));
  v.Expand(axes({copies[0], w[0].padded()}, {copies[1], w[1].padded()}));
  v.Reshape(axes({copies[0] * w[0].padded()}, {copies[1] * w[1].padded()}));
  for (size_t d = 0; d < 2; ++d) v.Shrink(2 + d, 0, w[d].kernel * row[d]);
  v.Reshape(axes({w[0].kernel, row[0]}, {w[1].kernel, row[1]}));
  v.Shrink(3, 0, p0 * w[0].stride);
  v.Shrink(5, 0, p1 * w[1].stride);
  v.Reshape(axes({w[0].kernel, p0, w[0].stride}, {w[1].kernel, p1, w[1].stride}));
  v.Shrink(4, 0, 1);
  v.Shrink(7, 0, 1);
  v.Reshape(axes({w[0].kernel, p0}, {w[1].kernel, p1}));
  v.Permute({0, 1, 3, 5, 2, 4});
  return v;
}

class WindowGradients {
 public:
  // Slot 0: the gradient for the image, of one for each tap, which is slot 1.
  UOp Pool(DType dtype, int64_t n, int64_t c, const Window (&w)[2], bool short_form = false) {
    const View v = Windows(&g_, n, c, w, short_form);
    return Store(v.Adjoint(g_.Param(1, dtype, v.dims())));
  }
  // The same where all taps have that of their window.
  UOp MeanPool(DType dtype, int64_t n, int64_t c, const Window (&w)[2]) {
    const View v = Windows(&g_, n, c, w);
    Shape dims = v.dims();
    dims[4] = dims[5] = 1;
    return Store(v.Adjoint(To(Op::kExpand, g_.Param(1, dtype, dims), v.dims())));
  }
  struct How {
    bool used_twice = false;    // the sum of products, not only for the gradient
    bool same_columns = false;  // the gradient of the output
    bool same_taps = false;     // the sum of products, of a weight that has one
    bool same_images = false;   // the same
    int flips = 0;              // of the products, back and forth
  };
  // Of a convolution: slot 1 is the gradient of its output [n, outputs, places, places], slot 2 the
  // weight [outputs, c, kernel, kernel].
  UOp Convolution(DType dtype, int64_t n, int64_t c, int64_t outputs, const Window (&w)[2],
                  const How& how) {
    const View v = Windows(&g_, n, c, w);
    const int64_t p0 = w[0].places(), p1 = w[1].places(), columns = how.same_columns ? 1 : p1;
    const int64_t k0 = how.same_taps ? 1 : w[0].kernel, k1 = how.same_taps ? 1 : w[1].kernel;
    const int64_t images = how.same_images ? 1 : n;
    const Shape all{images, outputs, c, p0, p1, k0, k1};
    UOp y = g_.Param(1, dtype, Shape{images, outputs, p0, columns});
    UOp weight = g_.Param(2, dtype, Shape{outputs, c, k0, k1});
    y = To(Op::kExpand, To(Op::kReshape, y, {images, outputs, 1, p0, columns, 1, 1}), all);
    weight = To(Op::kExpand, To(Op::kReshape, weight, {1, outputs, c, 1, 1, k0, k1}), all);
    UOp product = g_.Make(Op::kMul, {y, weight});
    for (int i = 0; i < how.flips; ++i) product = To(Op::kFlip, product, {1 + i % 2});
    const int64_t axes[] = {static_cast<int64_t>(ReduceKind::kAdd), 1};
    UOp sum = g_.Make(Op::kReduce, {product}, std::span(axes));
    sum = To(Op::kExpand, To(Op::kReshape, sum, {images, c, p0, p1, k0, k1}), v.dims());
    const UOp gradient = v.Adjoint(sum);
    if (!how.used_twice) return Store(gradient);
    const UOp kept = g_.Make(Op::kStore, {g_.Param(3, dtype, v.dims()), sum});
    const UOp out = g_.Param(0, dtype, gradient.shape());
    return g_.Make(Op::kSink, {g_.Make(Op::kStore, {out, gradient}), kept});
  }

  Graph& graph() { return g_; }

 private:
  UOp To(Op op, UOp x, const Shape& arg) { return g_.Make(op, {x}, arg); }
  UOp Store(UOp value) {
    const UOp out = g_.Param(0, value.dtype(), value.shape());
    return g_.Make(Op::kSink, {g_.Make(Op::kStore, {out, value})});
  }

  Graph g_;
};

FrozenGraph Simplified(UOp sink, bool fixed = false) {
  Budget budget;
  const auto legal = Legalize(sink, {}, &budget);
  EXPECT_TRUE(legal.ok()) << legal.status();
  const auto out = SimplifyWindowSums(*legal, fixed, &budget);
  EXPECT_TRUE(out.ok()) << out.status();
  const absl::Status verified = Verify(out->root(), kTensorLevel);
  EXPECT_TRUE(verified.ok()) << verified;
  return *out;
}

// --- what becomes of them ---

TEST(WindowSums, APoolOfWindowsApartIsAView) {
  for (const Window& w :
       {Window{.size = 20, .kernel = 2, .stride = 2}, Window{.size = 21, .kernel = 2, .stride = 3},
        Window{.size = 20, .kernel = 3, .stride = 3, .before = 1, .after = 1}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt8}) {
      WindowGradients all;
      const UOp sink = all.Pool(dtype, 4, 3, {w, w});
      EXPECT_EQ(Count(sink, Op::kReduce), 1) << "no longer spelled with copies";
      EXPECT_EQ(Count(Simplified(sink).root(), Op::kReduce), 0) << Name(dtype);
    }
  }
  // All taps of a window have the same gradient.
  WindowGradients all;
  const Window two{.size = 20, .kernel = 2, .stride = 2};
  EXPECT_EQ(Count(Simplified(all.MeanPool(DType::kFloat32, 4, 3, {two, two})).root(), Op::kReduce),
            0);
}

TEST(WindowSums, TapsThatShowOnlyPaddingAreLeftOut) {
  WindowGradients all;
  const Window w{.size = 24, .kernel = 5};
  const UOp sink = all.Pool(DType::kFloat32, 4, 3, {w, w});
  EXPECT_EQ(Summed(sink), 4 * 3 * 24 * 24 * 36)
      << "no longer spelled with a tap that shows nothing";
  EXPECT_EQ(Summed(Simplified(sink).root()), 4 * 3 * 24 * 24 * 25);
}

TEST(WindowSums, ASumOverPaddingAloneIsOverWhatIsPadded) {
  Graph g;
  const UOp x = g.Param(1, DType::kFloat32, Shape{11});
  const int64_t pairs[] = {2, 16}, axes[] = {static_cast<int64_t>(ReduceKind::kAdd), 0};
  const UOp sum = g.Make(Op::kReduce, {g.Make(Op::kPad, {x}, pairs)}, std::span(axes));
  const UOp out = g.Param(0, DType::kFloat32, Shape{1});
  EXPECT_EQ(Summed(Simplified(g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})})).root()), 11);
}

TEST(WindowSums, TheGradientOfAConvolutionIsOneSum) {
  const Window w{.size = 24, .kernel = 5};
  {
    WindowGradients all;
    const UOp sink = all.Convolution(DType::kFloat32, 4, 32, 32, {w, w}, {});
    const FrozenGraph made = Simplified(sink);
    EXPECT_EQ(Count(made.root(), Op::kReduce), 1);
    EXPECT_EQ(Summed(made.root()), 4 * 32 * 24 * 24 * 25 * 32);
    Budget budget;
    const auto schedule = ScheduleGraph(sink, &budget);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule->kernels.size(), 1u);
    EXPECT_EQ(schedule->arena_bytes, 0) << "keeps the products of each tap";
    // A fixed order is that of the sums as they are spelled.
    EXPECT_EQ(Count(Simplified(sink, true).root(), Op::kReduce), 2);
  }
  {
    WindowGradients all;
    const UOp sink = all.Convolution(DType::kFloat32, 4, 32, 32, {w, w}, {.used_twice = true});
    EXPECT_EQ(Count(Simplified(sink).root(), Op::kReduce), 2) << "the inner sum is stored";
  }
  {
    // Mostly padding: it would multiply 5.4 times as often.
    WindowGradients all;
    const Window few{.size = 7, .kernel = 5};
    const UOp sink = all.Convolution(DType::kFloat32, 4, 32, 32, {few, few}, {});
    EXPECT_EQ(Count(Simplified(sink).root(), Op::kReduce), 2);
  }
}

// A sum begins with +0, so that of one tap that is -0 is not the tap.
TEST(WindowSums, ASumOfOneTapIsNotMinusZero) {
  Graph g;
  const UOp x = g.Param(1, DType::kFloat32, Shape{4, 1});
  const int64_t pairs[] = {0, 4, 2, 3}, axes[] = {static_cast<int64_t>(ReduceKind::kAdd), 1};
  const UOp sum = g.Make(Op::kReduce, {g.Make(Op::kPad, {x}, pairs)}, std::span(axes));
  const UOp out = g.Param(0, DType::kFloat32, Shape{4, 1});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})});
  EXPECT_EQ(Count(Simplified(sink).root(), Op::kReduce), 0);
  const float values[] = {1, -0.0f, 0, -2};
  Slots slots(2, std::vector<uint8_t>(sizeof(values)));
  std::memcpy(slots[1].data(), values, sizeof(values));
  const auto runner = testing::CpuRunner::Open();
  ASSERT_TRUE(runner.ok()) << runner.status();
  ASSERT_TRUE((*runner)->Run(sink, {}, &slots).ok());
  float results[4];
  std::memcpy(results, slots[0].data(), sizeof(results));
  EXPECT_EQ(results[0], 1);
  EXPECT_FALSE(std::signbit(results[1]));
  EXPECT_EQ(results[3], -2);
}

TEST(WindowSums, WhatIsRepeatedIsSummedOnce) {
  using How = WindowGradients::How;
  const Window w{.size = 24, .kernel = 5};
  for (const How& how :
       {How{.same_columns = true}, How{.same_taps = true}, How{.same_images = true}}) {
    WindowGradients all;
    const UOp sink = all.Convolution(DType::kFloat32, 4, 32, 32, {w, w}, how);
    EXPECT_EQ(Count(Simplified(sink).root(), Op::kReduce), 2) << Print(sink);
  }
}

TEST(WindowSums, ManyViewsOfProductsAreNotMadeAnew) {
  const Window w{.size = 24, .kernel = 5};
  for (const int flips : {20, 2000}) {
    WindowGradients all;
    const UOp sink = all.Convolution(DType::kFloat32, 4, 32, 32, {w, w}, {.flips = flips});
    EXPECT_EQ(Count(Simplified(sink).root(), Op::kReduce), flips == 20 ? 1 : 2);
  }
}

// What is beyond the limits of a graph stays as it is.
TEST(WindowSums, AConvolutionFitsAGraph) {
  const Window w{.size = 24, .kernel = 5};
  const int64_t all = static_cast<int64_t>(ReduceKind::kAdd), p = w.places(), k = w.kernel;
  // Along one axis, over 16 outputs, of n images and further axes of one element.
  const auto reduces = [&](int64_t n, size_t rank) {
    Graph g;
    Shape y{n, 16, p, 1}, weight{n, 16, 1, k}, dims{n, 16, p, k};
    y[0] = weight[0] = 1;
    for (Shape* x : {&y, &weight, &dims}) x->resize(rank, 1);
    const UOp product =
        g.Make(Op::kMul, {g.Make(Op::kExpand, {g.Param(1, DType::kFloat32, y)}, dims),
                          g.Make(Op::kExpand, {g.Param(2, DType::kFloat32, weight)}, dims)});
    const UOp inner = g.Make(Op::kReduce, {product}, std::vector<int64_t>{all, 1});
    View v(&g, {n, w.size});
    v.Reshape({n, 1, w.size});
    const int64_t row = w.size + 1, copies = (k * row + w.size - 1) / w.size;
    v.Expand({n, copies, w.size});
    v.Reshape({n, copies * w.size});
    v.Shrink(1, 0, k * row);
    v.Reshape({n, k, row});
    v.Shrink(2, 0, p);
    v.Permute({0, 2, 1});
    dims[1] = 1;
    v.Reshape(dims);
    std::vector<int64_t> first{0, 1, 0, w.size};
    const UOp sum = g.Make(Op::kShrink, {v.Adjoint(inner)}, first);
    const UOp out = g.Param(0, DType::kFloat32, sum.shape());
    return Count(Simplified(g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})})).root(),
                 Op::kReduce);
  };
  EXPECT_EQ(reduces(4, 8), 1);
  EXPECT_EQ(reduces(4, kMaxRank), 2) << "rows and taps are one axis more";
  const int64_t most = kMaxElements / (16 * p * k);
  EXPECT_EQ(reduces(most / 2, 4), 1);
  EXPECT_EQ(reduces(most, 4), 2) << "24 places for 20";
}

// --- the same values ---

TEST(WindowSums, RandomGradientsAreTheSame) {
  const char* const chosen = std::getenv("TELEGRAD_SEED");
  const uint32_t first = chosen != nullptr ? static_cast<uint32_t>(std::atoi(chosen)) : 1;
  const uint32_t count = chosen != nullptr ? 1 : 300;
  int views = 0, convolutions = 0, without = 0;
  const auto runner = testing::CpuRunner::Open();
  ASSERT_TRUE(runner.ok()) << runner.status();
  for (uint32_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(StrCat("TELEGRAD_SEED=", seed));
    std::mt19937 random(seed);
    const auto number = [&](int64_t from, int64_t to) {
      return std::uniform_int_distribution<int64_t>(from, to)(random);
    };
    Window w[2];
    const int64_t kind = number(0, 2);  // apart, next to each other, or any
    for (Window& x : w) {
      x.kernel = number(1, 4);
      x.dilation = kind == 2 && number(0, 3) == 0 ? 2 : 1;
      x.stride = kind == 0 ? x.kernel + number(0, 1) : kind == 1 ? 1 : number(1, 4);
      x.before = number(0, 2) == 0 ? number(0, 2) : 0;
      x.after = number(0, 2) == 0 ? number(0, 2) : 0;
      const int64_t least = x.dilation * (x.kernel - 1) + 1;
      x.size = std::max<int64_t>(1, least - x.before - x.after) + number(kind == 1 ? 4 : 0, 9);
    }
    const int64_t n = number(1, 2), c = number(1, 3), outputs = number(1, 4) * 8;
    // Sums of small integers are exact in any order.
    const DType types[] = {DType::kInt32, DType::kFloat32, DType::kFloat32};
    const DType dtype = types[number(0, 2)];
    WindowGradients all;
    const int64_t what = number(0, 3);
    const UOp sink = what == 0   ? all.Pool(dtype, n, c, w, number(0, 3) == 0)
                     : what == 1 ? all.MeanPool(dtype, n, c, w)
                                 : all.Convolution(dtype, n, c, outputs, w,
                                                   {.used_twice = number(0, 5) == 0,
                                                    .same_columns = number(0, 5) == 0,
                                                    .flips = static_cast<int>(number(0, 2))});
    ASSERT_TRUE(all.graph().status().ok()) << all.graph().status();
    const FrozenGraph made = Simplified(sink);
    const int before = Count(sink, Op::kReduce), after = Count(made.root(), Op::kReduce);
    if (what < 2) {
      views += after < before;
    } else {
      convolutions += after < before;
    }
    without += after == before && Summed(made.root()) < Summed(sink);

    Slots slots = testing::EmptySlots(sink);
    for (std::vector<uint8_t>& slot : slots) {
      for (size_t i = 0; i < slot.size(); i += 4) {
        const int64_t value = number(-4, 4);
        // A zero is negative as often as not.
        const float real = value == 0 && number(0, 1) == 0 ? -0.0f : static_cast<float>(value);
        const auto integer = static_cast<int32_t>(value);
        std::memcpy(&slot[i],
                    dtype == DType::kInt32 ? static_cast<const void*>(&integer)
                                           : static_cast<const void*>(&real),
                    4);
      }
    }
    Budget budget;
    Slots want = slots, got = slots, run = slots;
    ASSERT_TRUE(reference::Evaluate(sink, want, &budget).ok());
    ASSERT_TRUE(reference::Evaluate(made.root(), got, &budget).ok());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(testing::Difference(dtype, true, want[i], got[i]), "") << Print(made.root());
      ASSERT_EQ(want[i], got[i]) << "the sign of a zero\n" << Print(made.root());
    }
    ASSERT_TRUE((*runner)->Run(sink, {}, &run).ok());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(testing::Difference(dtype, true, want[i], run[i]), "") << "run";
    }
  }
  std::cout << views << " became views, " << convolutions << " convolutions, " << without
            << " lost taps\n";
  if (chosen != nullptr) return;
  EXPECT_GT(views, 20);
  EXPECT_GT(convolutions, 20);
  EXPECT_GT(without, 20);
}

}  // namespace
}  // namespace telegrad
