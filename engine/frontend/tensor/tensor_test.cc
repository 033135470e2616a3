// Tensor methods on small values: broadcasting, movement, reductions, products and convolutions
// against loops, error messages; and the slots of plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>
#include <utility>

#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"
#include "engine/frontend/tensor/test_eval.h"

namespace telegrad {
namespace {

using test::Bindings;
using test::Values;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kDouble = DType::kFloat64;

// ConvTranspose and Interpolate kept a reference to an element of t.dims(), which is a temporary.
static_assert(std::is_same_v<decltype(std::declval<const Tensor&>().dims()[0]), Dim>);
static_assert(std::is_same_v<decltype(std::declval<const Dims&>()[0]), const Dim&>);

Values Evaluate(Builder* b, const Tensor& t, Bindings bindings = {}) {
  b->Output(t, "result");
  const absl::StatusOr<Plan> plan = b->Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  test::Run(*plan, &bindings);
  return bindings["result"];
}

Values Counting(int64_t n, double scale = 1) {
  Values out(n);
  for (int64_t i = 0; i < n; ++i) out[i] = scale * static_cast<double>(i);
  return out;
}

// Not monotonic, with both signs and without ties.
Values Mixed(int64_t n) {
  Values out(n);
  for (int64_t i = 0; i < n; ++i) out[i] = std::sin(static_cast<double>(3 * i + 1)) * 2;
  return out;
}

TEST(TensorTest, BroadcastsLikeNumpy) {
  Builder b;
  const Tensor x = b.Param(kDouble, {2, 1, 3}, "x"), y = b.Param(kDouble, {2, 1}, "y");
  const Tensor sum = x + y;
  EXPECT_THAT(sum.shape(), ElementsAre(2, 2, 3));
  EXPECT_THAT(Evaluate(&b, sum, {{"x", Counting(6)}, {"y", {10, 20}}}),
              ElementsAre(10, 11, 12, 20, 21, 22, 13, 14, 15, 23, 24, 25));
}

TEST(TensorTest, ErrorsAreStickyAndNameOperationShapesAndAxis) {
  Builder b;
  const Tensor x = b.Param(kDouble, {2, 3}, "x"), y = b.Param(kDouble, {2, 4}, "y");
  const Tensor bad = x + y;
  EXPECT_FALSE(bad.valid());
  EXPECT_FALSE((bad.Exp().Sum({0}) * 2.0).valid());
  x.Reshape({5});  // a second error does not hide the first
  b.Output(bad, "out");
  const absl::Status status = b.Finish().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              "add: shapes [2, 3] and [2, 4] do not broadcast: axis 1 has 3 and 4");
}

TEST(TensorTest, EachMistakeHasItsMessage) {
  const auto message = [](auto make) {
    Builder b;
    const Tensor x = b.Param(kDouble, {2, 3}, "x");
    make(b, x);
    return std::string(b.status().message());
  };
  EXPECT_THAT(message([](Builder& b, Tensor x) { x + b.Const(DType::kInt4, 1); }),
              HasSubstr("add: element types f64 [2, 3] and i4 [] have no common type; cast one"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x.Reshape({4, -1}); }),
              HasSubstr("from [2, 3] to [4, -1]: 6 elements are not a multiple of 4"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x.Reshape({-1, -1}); }), HasSubstr("axis 1"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x.Expand({2, 4}); }),
              HasSubstr("axis 1 has size 3 and cannot become 4"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x.Permute({0, 0}); }), HasSubstr("axis 0 appears"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x.Sum({2}); }),
              HasSubstr("sum: axis 2 is outside of rank 2"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x.Slice(1, 1, 9); }), HasSubstr("no part [1, 9)"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x.MatMul(x); }),
              HasSubstr("matmul: [2, 3] and [2, 3]: the last axis has 3"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x.Windows({4}); }),
              HasSubstr("smaller than the window of 4"));
  EXPECT_THAT(message([](Builder& b, Tensor) { b.Param(kDouble, {}, "x"); }),
              HasSubstr("already a slot named 'x'"));
  EXPECT_THAT(message([](Builder& b, Tensor x) { b.Store(x, x); }),
              HasSubstr("slot 'x' is an input"));
  EXPECT_THAT(message([](Builder&, Tensor x) { x + Tensor(); }), HasSubstr("empty tensor"));
  EXPECT_THAT(message([](Builder& b, Tensor x) {
                const Tensor out = b.Param(kDouble, {2, 3}, "out", SlotRole::kOutput);
                b.Store(out, x);
                b.Store(out, x);
              }),
              HasSubstr("stored to already"));
  EXPECT_THAT(message([](Builder& b, Tensor x) {
                const Tensor out = b.Param(kDouble, {3}, "out", SlotRole::kOutput);
                b.Store(out.Expand({2, 3}), x);
              }),
              HasSubstr("one-to-one view"));
  EXPECT_THAT(message([](Builder&, Tensor x) {
                Builder other;
                x + other.Const(kDouble, 1);
              }),
              HasSubstr("another builder"));
}

TEST(TensorTest, ElementwiseMatchesTheMathLibrary) {
  const Values in = {-3, -1.5, -0.25, 0.5, 1, 4};
  const auto check = [&](auto op, auto expected) {
    Builder b;
    const Values got = Evaluate(&b, op(b.Param(kDouble, {6}, "x")), {{"x", in}});
    ASSERT_EQ(got.size(), in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const double want = expected(in[i]);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got[i]));
      } else {
        EXPECT_NEAR(got[i], want, 1e-12 * (1 + std::abs(want))) << in[i];
      }
    }
  };
  using T = const Tensor&;
  check([](T x) { return x.Exp(); }, [](double x) { return std::exp(x); });
  check([](T x) { return x.Log(); }, [](double x) { return std::log(x); });
  check([](T x) { return x.Abs().Sqrt(); }, [](double x) { return std::sqrt(std::abs(x)); });
  check([](T x) { return x.Tanh(); }, [](double x) { return std::tanh(x); });
  check([](T x) { return x.Sigmoid(); }, [](double x) { return 1 / (1 + std::exp(-x)); });
  check([](T x) { return x.Relu(); }, [](double x) { return x > 0 ? x : 0; });
  check([](T x) { return x.Minimum(x.Like(1)); }, [](double x) { return std::min(x, 1.0); });
  check([](T x) { return 2.0 / x - 1.0; }, [](double x) { return 2 / x - 1; });
  check([](T x) { return x.Le(x.Like(0.5)).Cast(kDouble); }, [](double x) { return x <= 0.5; });
  check([](T x) { return x.Ge(x.Like(0.5)).Not().Cast(kDouble); },
        [](double x) { return x < 0.5; });
}

TEST(TensorTest, ErfAndGeluAreNearTheirDefinitions) {
  Values in = {0, 1e-30, -1e-8, 1e-4, 30, -1e30, HUGE_VAL, -HUGE_VAL};
  for (int i = -500; i <= 500; ++i) in.push_back(i * 0.01);
  const auto check = [&](auto op, auto expected, double relative, double absolute) {
    Builder b;
    const Tensor x = b.Param(kDouble, {static_cast<int64_t>(in.size())}, "x");
    const Values got = Evaluate(&b, op(x), {{"x", in}});
    ASSERT_EQ(got.size(), in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const double want = expected(in[i]);
      if (std::isinf(in[i]) && std::isnan(want)) continue;
      if (want == got[i]) continue;
      EXPECT_NEAR(got[i], want, absolute + relative * std::abs(want)) << in[i];
    }
  };
  using T = const Tensor&;
  check([](T x) { return x.Erf(); }, [](double x) { return std::erf(x); }, 1e-7, 0);
  const auto normal = [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2)); };
  in.insert(in.end(), {-37, -20, -8.25});  // where 1 + erf has nothing left
  check([](T x) { return x.Gelu(); }, normal, 4e-13, 0);
  check([](T x) { return x.GeluTanh(); }, normal, 0, 1e-3);
}

TEST(TensorTest, MinimumOfUnsignedDoesNotWrap) {
  Builder b;
  const Tensor x = b.Param(DType::kUInt8, {2}, "x"), y = b.Param(DType::kUInt8, {2}, "y");
  EXPECT_THAT(Evaluate(&b, x.Minimum(y), {{"x", {0, 9}}, {"y", {1, 3}}}), ElementsAre(0, 3));
}

TEST(TensorTest, Movement) {
  Builder b;
  const Tensor x = b.Param(kDouble, {2, 3}, "x");
  const Tensor t = x.Transpose().Flip({0}).Pad({0, 1, 1, 0}, 7);
  EXPECT_THAT(t.shape(), ElementsAre(4, 3));
  EXPECT_THAT(Evaluate(&b, t, {{"x", Counting(6)}}),
              ElementsAre(7, 2, 5, 7, 1, 4, 7, 0, 3, 7, 7, 7));
}

TEST(TensorTest, SliceAndConcat) {
  Builder b;
  const Tensor x = b.Param(kDouble, {2, 3}, "x");
  const Tensor parts[] = {x.Slice(1, 2, 3), x.Slice(1, 0, -1), x.Slice(-1, 1, 2)};
  const Tensor joined = Concat(parts, -1);
  EXPECT_THAT(joined.shape(), ElementsAre(2, 4));
  EXPECT_THAT(Evaluate(&b, joined, {{"x", Counting(6)}}), ElementsAre(2, 0, 1, 1, 5, 3, 4, 4));
}

TEST(TensorTest, MovementThatChangesNothingMakesNoNode) {
  Builder b;
  const Tensor x = b.Param(kDouble, {2, 3}, "x");
  EXPECT_EQ(x.Reshape({2, -1}).uop(), x.uop());
  EXPECT_EQ(x.Permute({0, -1}).uop(), x.uop());
  EXPECT_EQ(x.Pad({0, 0, 0, 0}).uop(), x.uop());
  EXPECT_EQ(x.Slice(0, 0, 2).uop(), x.uop());
  EXPECT_EQ(x.Expand({2, 3}).uop(), x.uop());
}

TEST(TensorTest, Reductions) {
  Builder b;
  const Tensor x = b.Param(kDouble, {2, 3}, "x");
  const Tensor parts[] = {x.Sum({1}), x.Max({1}), x.Mean({1}), x.Mean().Reshape({1})};
  EXPECT_THAT(x.Sum({0}, true).shape(), ElementsAre(1, 3));
  EXPECT_THAT(Evaluate(&b, Concat(parts, 0), {{"x", {3, 1, 2, 9, 4, 5}}}),
              ElementsAre(6, 18, 3, 9, 2, 6, 4));
}

TEST(TensorTest, ArgMaxTakesTheFirstAndNan) {
  Builder b;
  const Tensor x = b.Param(kDouble, {3, 3}, "x");
  EXPECT_THAT(Evaluate(&b, x.ArgMax(-1), {{"x", {1, 5, 5, 0, NAN, NAN, -INFINITY, -INFINITY, -1}}}),
              ElementsAre(1, 1, 2));
}

TEST(TensorTest, SoftmaxAndCrossEntropy) {
  Builder b;
  const Tensor x = b.Param(kDouble, {2, 3}, "x"), labels = b.Param(DType::kInt32, {2}, "labels");
  const Values in = {1, 2, 4, 1000, 999, -1000};
  const Tensor parts[] = {x.Softmax().Flatten(0), x.CrossEntropy(labels).Reshape({1})};
  const Values got = Evaluate(&b, Concat(parts, 0), {{"x", in}, {"labels", {1, 0}}});
  const double sum = std::exp(1) + std::exp(2) + std::exp(4), tail = 1 + std::exp(-1);
  EXPECT_NEAR(got[1], std::exp(2) / sum, 1e-12);
  EXPECT_NEAR(got[3], 1 / tail, 1e-12);
  EXPECT_NEAR(got[6], (-std::log(std::exp(2) / sum) + std::log(tail)) / 2, 1e-12);
}

TEST(TensorTest, StandardizeHasMeanZeroAndVarianceOne) {
  Builder b;
  const Values got = Evaluate(&b, b.Param(kDouble, {3, 2}, "x").Standardize({0}, 0.25),
                              {{"x", {1, 5, 2, 5, 3, 5}}});
  const double deviation = std::sqrt(2.0 / 3 + 0.25);
  const double want[] = {-1 / deviation, 0, 0, 0, 1 / deviation, 0};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

TEST(TensorTest, OneHotDoesNotWrapNarrowLabels) {
  Builder b;
  const Tensor labels = b.Param(DType::kInt8, {2}, "labels");
  const Tensor hot = labels.OneHot(300);
  EXPECT_THAT(hot.shape(), ElementsAre(2, 300));
  const Values got = Evaluate(&b, hot.Sum({1}), {{"labels", {44, -1}}});
  EXPECT_THAT(got, ElementsAre(1, 0));
}

TEST(TensorTest, GatherRows) {
  Builder b;
  const Tensor x = b.Param(kDouble, {3, 2}, "x"), at = b.Param(DType::kInt64, {2, 2}, "at");
  const Tensor rows = x.Gather(at);
  EXPECT_THAT(rows.shape(), ElementsAre(2, 2, 2));
  EXPECT_THAT(Evaluate(&b, rows, {{"x", Counting(6)}, {"at", {2, 0, -1, 3}}}),
              ElementsAre(4, 5, 0, 1, 0, 0, 0, 0));
}

TEST(TensorTest, MatMulRanks) {
  const auto shape = [](const Shape& a, const Shape& c) {
    Builder b;
    return ToShape(b.Param(kDouble, a, "a").MatMul(b.Param(kDouble, c, "c")).shape());
  };
  EXPECT_EQ(shape({3}, {3}), (Shape{}));
  EXPECT_EQ(shape({2, 3}, {3}), (Shape{2}));
  EXPECT_EQ(shape({3}, {3, 4}), (Shape{4}));
  EXPECT_EQ(shape({5, 1, 2, 3}, {7, 3, 4}), (Shape{5, 7, 2, 4}));
  EXPECT_EQ(shape({5, 2, 3}, {3}), (Shape{5, 2}));
  EXPECT_EQ(shape({3}, {5, 3, 4}), (Shape{5, 4}));
}

TEST(TensorTest, MatMulValues) {
  Builder b;
  const Tensor x = b.Param(kDouble, {2, 2, 3}, "x"), y = b.Param(kDouble, {3, 2}, "y");
  EXPECT_THAT(Evaluate(&b, x.MatMul(y), {{"x", Counting(12)}, {"y", {1, 0, 0, 1, 1, 1}}}),
              ElementsAre(2, 3, 8, 9, 14, 15, 20, 21));
}

// Windows against their definition, for every small geometry.
TEST(TensorTest, WindowsOfAllSmallGeometries) {
  for (int64_t in = 1; in <= 7; ++in) {
    for (int64_t kernel = 1; kernel <= 4; ++kernel) {
      for (int64_t stride = 1; stride <= 9; stride += 1 + stride / 4) {
        for (int64_t dilation = 1; dilation <= 3; ++dilation) {
          const int64_t extent = dilation * (kernel - 1) + 1;
          if (extent > in) continue;
          const int64_t out = (in - extent) / stride + 1;
          Builder b;
          const Tensor x = b.Param(kDouble, {2, in}, "x");
          const Tensor w = x.Windows({kernel}, {.stride = {stride}, .dilation = {dilation}});
          ASSERT_TRUE(w.valid()) << b.status();
          ASSERT_THAT(w.shape(), ElementsAre(2, out, kernel));
          Values expected;
          for (int64_t r = 0; r < 2; ++r) {
            for (int64_t o = 0; o < out; ++o) {
              for (int64_t k = 0; k < kernel; ++k) {
                expected.push_back(static_cast<double>(r * in + o * stride + k * dilation));
              }
            }
          }
          EXPECT_EQ(Evaluate(&b, w, {{"x", Counting(2 * in)}}), expected)
              << in << " " << kernel << " " << stride << " " << dilation;
        }
      }
    }
  }
}

struct ConvCase {
  int64_t channels, outputs, groups, height, width, kernel_h, kernel_w;
  Window window;
};

// The definition of a convolution as loops.
Values DirectConv(const ConvCase& c, const Values& x, const Values& w, Shape* shape) {
  const int64_t oh = (c.height + c.window.pads[0] + c.window.pads[1] -
                      c.window.dilation[0] * (c.kernel_h - 1) - 1) /
                         c.window.stride[0] +
                     1;
  const int64_t ow = (c.width + c.window.pads[2] + c.window.pads[3] -
                      c.window.dilation[1] * (c.kernel_w - 1) - 1) /
                         c.window.stride[1] +
                     1;
  *shape = {2, c.outputs, oh, ow};
  const int64_t in_group = c.channels / c.groups, out_group = c.outputs / c.groups;
  Values out;
  test::ForEach(*shape, [&](const std::vector<int64_t>& i, int64_t) {
    double sum = 0;
    test::ForEach(Shape{in_group, c.kernel_h, c.kernel_w}, [&](const std::vector<int64_t>& k,
                                                               int64_t) {
      const int64_t channel = i[1] / out_group * in_group + k[0];
      const int64_t y = i[2] * c.window.stride[0] + k[1] * c.window.dilation[0] - c.window.pads[0];
      const int64_t z = i[3] * c.window.stride[1] + k[2] * c.window.dilation[1] - c.window.pads[2];
      if (y < 0 || y >= c.height || z < 0 || z >= c.width) return;
      sum += x[((i[0] * c.channels + channel) * c.height + y) * c.width + z] *
             w[((i[1] * in_group + k[0]) * c.kernel_h + k[1]) * c.kernel_w + k[2]];
    });
    out.push_back(sum);
  });
  return out;
}

TEST(TensorTest, ConvAgainstLoops) {
  const ConvCase cases[] = {
      {3, 4, 1, 5, 6, 3, 3, {.stride = {1, 1}, .dilation = {1, 1}, .pads = {1, 1, 1, 1}}},
      {4, 6, 2, 7, 5, 3, 2, {.stride = {2, 1}, .dilation = {1, 2}, .pads = {0, 2, 1, 0}}},
      {4, 4, 4, 6, 6, 2, 2, {.stride = {2, 2}, .dilation = {1, 1}, .pads = {0, 0, 0, 0}}},
      {2, 3, 1, 4, 4, 1, 1, {.stride = {3, 2}, .dilation = {1, 1}, .pads = {0, 0, 0, 0}}},
      // Taps that only meet padding: on both sides, on one, and beside a strided window.
      {2, 3, 1, 5, 6, 3, 3, {.stride = {1, 1}, .dilation = {6, 5}, .pads = {6, 6, 5, 5}}},
      {2, 2, 2, 5, 5, 3, 5, {.stride = {2, 1}, .dilation = {6, 3}, .pads = {7, 5, 7, 5}}},
      {2, 3, 1, 3, 9, 5, 2, {.stride = {2, 3}, .dilation = {1, 9}, .pads = {4, 0, 0, 9}}},
      // Taps that few windows see, each a convolution of its own: along both axes, and strided.
      {2, 3, 1, 9, 20, 3, 3, {.stride = {1, 1}, .dilation = {7, 16}, .pads = {7, 7, 16, 16}}},
      {2, 3, 1, 16, 16, 3, 1, {.stride = {2, 1}, .dilation = {14, 1}, .pads = {14, 15, 0, 0}}},
  };
  for (const ConvCase& c : cases) {
    Builder b;
    const Tensor x = b.Param(kDouble, {2, c.channels, c.height, c.width}, "x");
    const Tensor w =
        b.Param(kDouble, {c.outputs, c.channels / c.groups, c.kernel_h, c.kernel_w}, "w");
    const Tensor y = x.Conv(w, c.window, c.groups);
    ASSERT_TRUE(y.valid()) << b.status();
    const Values xs = Mixed(x.size()), ws = Mixed(w.size());
    Shape shape;
    const Values expected = DirectConv(c, xs, ws, &shape);
    EXPECT_EQ(ToShape(y.shape()), shape);
    EXPECT_THAT(Evaluate(&b, y, {{"x", xs}, {"w", ws}}),
                ::testing::Pointwise(::testing::DoubleNear(1e-12), expected));
  }
}

// Large windows, whose maximum is taken along each axis in turn: 5 + 6 comparisons, not 30. Long
// ones are put together of shorter ones: 3 + 4 comparisons, not 8 + 11.
TEST(TensorTest, MaxPoolOfLargeWindowsAgainstLoops) {
  struct Pool {
    int64_t stride, dilation, before, after, rows, columns;
    int64_t most;  // comparisons for each result, with those along the first axis alone
  };
  constexpr int64_t kHeight = 13, kWidth = 17;
  for (const Pool& p :
       {Pool{1, 1, 2, 2, 5, 6, 30}, Pool{2, 1, 0, 3, 5, 6, 30}, Pool{3, 2, 4, 1, 5, 6, 30},
        Pool{1, 1, 4, 3, 8, 11, 16}, Pool{1, 1, 0, 0, 13, 17, 400}, Pool{1, 1, 7, 2, 9, 8, 16}}) {
    const int64_t rows = p.rows, columns = p.columns;
    Builder b;
    const Tensor x = b.Param(kDouble, {2, kHeight, kWidth}, "x");
    const Tensor y = x.MaxPool({rows, columns}, {.stride = {p.stride},
                                                 .dilation = {p.dilation},
                                                 .pads = {p.before, p.after, p.before, p.after}});
    ASSERT_TRUE(y.valid()) << b.status();
    const Values xs = Mixed(x.size());
    const auto windows = [&](int64_t in, int64_t kernel) {
      return (in + p.before + p.after - p.dilation * (kernel - 1) - 1) / p.stride + 1;
    };
    const int64_t height = windows(kHeight, rows), width = windows(kWidth, columns);
    EXPECT_EQ(ToShape(y.shape()), (Shape{2, height, width}));
    Values expected;
    for (int64_t at = 0; at < 2 * height * width; ++at) {
      double most = -HUGE_VAL;
      for (int64_t tap = 0; tap < rows * columns; ++tap) {
        const int64_t row = at / width % height * p.stride - p.before + tap / columns * p.dilation;
        const int64_t column = at % width * p.stride - p.before + tap % columns * p.dilation;
        if (row < 0 || row >= kHeight || column < 0 || column >= kWidth) continue;
        const int64_t plane = at / (width * height);
        most = std::max(most, xs[static_cast<size_t>((plane * kHeight + row) * kWidth + column)]);
      }
      expected.push_back(most);
    }
    int64_t compared = 0;
    for (uint32_t id : PostOrder(y.uop())) {
      const UOp u = y.uop().graph()->at(id);
      if (u.is(Op::kReduce)) compared += NumElements(u.src(0).shape());
      if (u.is(Op::kMax)) compared += NumElements(u.shape());
    }
    EXPECT_LT(compared, p.most * 2 * height * width);
    EXPECT_EQ(Evaluate(&b, y, {{"x", xs}}), expected);
  }
}

TEST(TensorTest, PoolsPadWithTheirIdentity) {
  const Window window{.stride = {2}, .pads = {1}};
  const Bindings in = {{"x", {-1, -2, -3, -4}}};
  const auto run = [&](auto op) {
    Builder b;
    return Evaluate(&b, op(b.Param(kDouble, {1, 4}, "x")), in);
  };
  EXPECT_THAT(run([&](Tensor x) { return x.MaxPool({3}, window); }), ElementsAre(-1, -2));
  EXPECT_THAT(run([&](Tensor x) { return x.AvgPool({3}, window); }), ElementsAre(-1, -3));
  EXPECT_THAT(run([&](Tensor x) { return x.AvgPool({3}, window, false); }), ElementsAre(-1.5, -3));
}

TEST(BuilderTest, PlanDescribesItsSlots) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {2}, "x");
  const Tensor w = b.Trainable(DType::kFloat32, {2}, "w", Init::Uniform(-1, 1, 3));
  b.Store(w, w + x);
  EXPECT_EQ(b.Output(x * w, "y"), 2);
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->graph.root().is(Op::kSink));
  EXPECT_EQ(plan->Find("w"), 1);
  EXPECT_EQ(plan->Find("nobody"), -1);
  EXPECT_EQ(plan->slots[2].role, SlotRole::kOutput);
  EXPECT_EQ(b.trainable().size(), 1u);
  Bindings bindings = {{"x", {1, 2}}, {"w", {3, 4}}};
  test::Run(*plan, &bindings);
  EXPECT_THAT(bindings["w"], ElementsAre(4, 6));
  EXPECT_THAT(bindings["y"], ElementsAre(3, 8));  // reads see the values before the run
}

TEST(BuilderTest, InitialValuesAreTheSameEverywhere) {
  // Known values, so that another compiler or machine would fail here.
  const HostTensor value =
      *InitialValue({"w", DType::kFloat32, {3}, SlotRole::kState, Init::Uniform(-1, 1, 42)});
  EXPECT_THAT(value.Values<float>(), ElementsAre(0.48312974f, -0.68017924f, -0.44279778f));
  const HostTensor ones =
      *InitialValue({"c", DType::kInt16, {2}, SlotRole::kState, Init::Constant(-7)});
  EXPECT_THAT(ones.Values<int16_t>(), ElementsAre(-7, -7));
  EXPECT_EQ(InitialValue({"x", DType::kInt16, {2}, SlotRole::kInput, {}}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace telegrad
