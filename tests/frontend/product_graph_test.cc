// Products, windows and layers as graphs: with symbolic sizes, with wrong operands, and as kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/explain/explain.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/host_random.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kF32 = DType::kFloat32;

// --- Symbolic sizes ---

constexpr int64_t kMost = 6;

struct Symbolic {
  std::string_view name;
  std::vector<Shape> in;  // of the first `cut` the axis `axis`, of kMost, is cut to a length
  size_t cut;
  int64_t axis;
  // Its result has no symbolic axis.
  Tensor (*run)(const std::vector<Tensor>& in);
};

Tensor Squares(const Tensor& t) { return (t * t).Sum({0}); }

const Symbolic kSymbolic[] = {
    {"matmul rows",
     {{kMost, 3}, {3, 4}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].MatMul(in[1])); }},
    {"matmul inner",
     {{kMost, 3}, {kMost, 2}},
     2,
     0,
     [](const std::vector<Tensor>& in) { return in[0].Transpose().MatMul(in[1]); }},
    {"matmul batch",
     {{kMost, 2, 3}, {3, 4}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].MatMul(in[1])); }},
    {"dot",
     {{kMost, 3}, {2, 3, 4}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].Dot(in[1])); }},
    {"linear",
     {{kMost, 2, 3}, {4, 3}, {4}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].Linear(in[1], in[2])); }},
    {"einsum",
     {{kMost, 2}, {kMost, 3}},
     2,
     0,
     [](const std::vector<Tensor>& in) { return Einsum("ni,nj->ij", in); }},
    {"layer_norm",
     {{kMost, 4}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].LayerNorm()); }},
    {"rms_norm",
     {{kMost, 4}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].RmsNorm()); }},
    {"group_norm",
     {{kMost, 4, 3}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].GroupNorm(2)); }},
    {"batch_norm",
     {{kMost, 4}, {4}, {4}},
     1,
     0,
     [](const std::vector<Tensor>& in) {
       return Squares(in[0].BatchNorm(in[1], in[2] * in[2], {}, {}));
     }},
    {"attention to a cache",
     {{2, kMost, 4}, {2, kMost, 3}, {2, 1, 4}},
     2,
     1,
     [](const std::vector<Tensor>& in) { return in[2].ScaledDotProductAttention(in[0], in[1]); }},
    {"causal attention",
     {{1, kMost, 4}, {1, kMost, 4}, {1, kMost, 4}},
     3,
     1,
     [](const std::vector<Tensor>& in) {
       return in[0].ScaledDotProductAttention(in[1], in[2], {}, true).Sum({1});
     }},
    {"grouped attention",
     {{2, kMost, 4}, {2, kMost, 3}, {4, 2, 4}},
     2,
     1,
     [](const std::vector<Tensor>& in) {
       return in[2].ScaledDotProductAttention(in[0], in[1], {}, false, {}, true);
     }},
    {"rope",
     {{kMost, 4}, {kMost, 2}, {kMost, 2}},
     3,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].Rope(in[1], in[2]) + in[0]); }},
    {"conv",
     {{kMost, 2, 5}, {3, 2, 3}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].Conv(in[1], {.pads = {1}})); }},
    {"conv_transpose",
     {{kMost, 2, 3}, {2, 3, 3}},
     1,
     0,
     [](const std::vector<Tensor>& in) {
       return Squares(in[0].ConvTranspose(in[1], {.stride = {2}}));
     }},
    {"max_pool",
     {{kMost, 2, 5}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].MaxPool({3}, {.stride = {2}})); }},
    {"interpolate",
     {{kMost, 2, 3}},
     1,
     0,
     [](const std::vector<Tensor>& in) { return Squares(in[0].Interpolate({5})); }},
};

HostTensor Numbers(const Shape& shape, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(2 * UnitFraction(seed, i) - 1);
  }
  return HostTensor::Of<float>(shape, values);
}

// What a run cuts off gives what a part of fixed size gives.
TEST(ProductGraphTest, SymbolicSizes) {
  constexpr int64_t kLength = 4;
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (const Symbolic& s : kSymbolic) {
    SCOPED_TRACE(s.name);
    Builder b;
    const Tensor length = b.Variable("length", 1, kMost);
    Named inputs;
    std::vector<Tensor> fixed, symbolic;
    for (size_t i = 0; i < s.in.size(); ++i) {
      const std::string name = StrCat("in", i);
      inputs[name] = Numbers(s.in[i], i);
      const Tensor in = b.Param(kF32, s.in[i], name);
      fixed.push_back(i < s.cut ? in.Slice(s.axis, 0, kLength) : in);
      symbolic.push_back(i < s.cut ? in.Narrow(s.axis, 0, length) : in);
    }
    b.Output(s.run(fixed), "fixed");
    b.Output(s.run(symbolic), "symbolic");
    const absl::StatusOr<Plan> plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
      const auto got = RunPlan(*plan, inputs, device, nullptr, {{"length", kLength}});
      ASSERT_TRUE(got.ok()) << got.status();
      const HostTensor &want = got->at("fixed"), &have = got->at("symbolic");
      ASSERT_EQ(have.shape, want.shape);
      const std::vector<double> x = have.AsDoubles(), y = want.AsDoubles();
      // Sums are added in another order.
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_NEAR(x[i], y[i], 1e-5 * std::max(1.0, std::abs(y[i]))) << i;
      }
    }
  }
}

// --- Errors ---

struct Error {
  std::string_view message;
  Tensor (*run)(Builder& b);
};

Tensor Of(Builder& b, const Shape& shape, DType dtype = kF32) {
  return b.Param(dtype, shape, StrCat("x", b.slots().size()));
}

Tensor Ein(std::string_view formula, const std::vector<Tensor>& operands) {
  return Einsum(formula, operands);
}

#define FAILS(message, expression) {message, [](Builder& b) -> Tensor { return expression; }}

constexpr Error kErrors[] = {
    FAILS("matmul: [2, 3] and [2, 3]: the last axis has 3, the second to last axis of the other "
          "has 2",
          Of(b, {2, 3}).MatMul(Of(b, {2, 3}))),
    FAILS("matmul: [] and [3]: a scalar has no axis to sum over", Of(b, {}).MatMul(Of(b, {3}))),
    FAILS("matmul: shapes [2, 2, 1, 3] and [3, 1, 4, 3] do not broadcast: axis 0 has 2 and 3",
          Of(b, {2, 2, 3}).MatMul(Of(b, {3, 3, 4}))),
    FAILS("dot: [2, 3] and [2]: the last axis has 3, the only axis of the other has 2",
          Of(b, {2, 3}).Dot(Of(b, {2}))),
    FAILS("linear: [2, 3] with a weight of [3, 4], expected [..., in] and [out, in]",
          Of(b, {2, 3}).Linear(Of(b, {3, 4}))),
    FAILS("linear: a bias of [3] for [2, 4], expected [4]",
          Of(b, {2, 3}).Linear(Of(b, {4, 3}), Of(b, {3}))),
    FAILS("einsum: 'ij,jk' has 2 terms for 1 operands", Ein("ij,jk", {Of(b, {2, 3})})),
    FAILS("einsum: 'i?->i' has '?', expected letters", Ein("i?->i", {Of(b, {2, 3})})),
    FAILS("einsum: term 0 of 'ijk' has 3 letters for operand [2, 3]", Ein("ijk", {Of(b, {2, 3})})),
    FAILS("einsum: 'ij,jk->ik': axis 0 of operand 1 [4, 5] has 4, 'j' has 3",
          Ein("ij,jk->ik", {Of(b, {2, 3}), Of(b, {4, 5})})),
    FAILS("einsum: 'ii': axis 1 of operand 0 [2, 3] has 3, 'i' has 2", Ein("ii", {Of(b, {2, 3})})),
    FAILS("einsum: 'ij->k': the output has 'k', no term has", Ein("ij->k", {Of(b, {2, 3})})),
    FAILS("einsum: 'ij->ii' has 'i' twice in the output", Ein("ij->ii", {Of(b, {2, 3})})),
    FAILS("windows: spatial axis 1 of [2, 3, 2], padded by 0 and 1, is smaller than the window of "
          "4",
          Of(b, {2, 3, 2}).Windows({3, 4}, {.pads = {0, 0, 0, 1}})),
    FAILS("windows: 3 numbers of pads, expected 1 or 4",
          Of(b, {3, 3}).Windows({2, 2}, {.pads = {1, 1, 1}})),
    FAILS("windows: stride 0 is outside of [1, 1048576]",
          Of(b, {3, 3}).Windows({2}, {.stride = {0}})),
    FAILS("windows: spatial axis 0 of [<=4], padded by 0 and 0, is symbolic, expected a fixed size",
          Of(b, {4}).Narrow(0, 0, b.Variable("n", 1, 4)).Windows({2})),
    FAILS("conv: input [1, 4, 5] and weight [2, 3, 3], groups 1: axis 1 of the weight has 3, "
          "expected 4",
          Of(b, {1, 4, 5}).Conv(Of(b, {2, 3, 3}))),
    FAILS("conv: input [4, 5] and weight [2, 3, 3], groups 1: expected [N, C, ...] and [O, C / "
          "groups, ...]",
          Of(b, {4, 5}).Conv(Of(b, {2, 3, 3}))),
    FAILS("groups 3: the channels do not divide into groups",
          Of(b, {1, 4, 5}).Conv(Of(b, {3, 1, 3}), {}, 3)),
    FAILS("conv_transpose: input [1, 4, 5] and weight [3, 2, 3], groups 1: axis 0 of the weight "
          "has 3, expected 4",
          Of(b, {1, 4, 5}).ConvTranspose(Of(b, {3, 2, 3}))),
    FAILS("spatial axis 0 would become smaller than nothing",
          Of(b, {1, 4, 1}).ConvTranspose(Of(b, {4, 2, 3}), {.pads = {2}})),
    FAILS("conv_transpose: output_pads 2 on axis 0, expected less than the stride 2 or the "
          "dilation 1",
          Of(b, {1, 4, 1}).ConvTranspose(Of(b, {4, 2, 3}), {.stride = {2}}, 1, {2})),
    FAILS("max_pool: element type bool of [1, 1, 4] is not a number",
          Of(b, {1, 1, 4}, DType::kBool).MaxPool({2}, {})),
    FAILS("lp_pool: p is 0, expected above 0", Of(b, {1, 1, 4}).LpPool({2}, {}, 0)),
    FAILS("max_unpool: [1, 1, 2] with indices f32 [1, 1, 2] to [4], expected integers",
          Of(b, {1, 1, 2}).MaxUnpool(Of(b, {1, 1, 2}), {4})),
    FAILS("interpolate: [1, 2] to [0]: axis 1 goes from 2 to 0, expected sizes in [1, ",
          Of(b, {1, 2}).Interpolate({0})),
    FAILS("interpolate: [1, 2] to [4]: only linear aligns corners",
          Of(b, {1, 2}).Interpolate({4}, Interpolation::kNearest, true)),
    FAILS("batch_norm: the variance of [3] for [2, 4, 3], expected [4]",
          Of(b, {2, 4, 3}).BatchNorm(Of(b, {4}), Of(b, {3}), {}, {})),
    FAILS("layer_norm: axis 2 is outside of rank 2", Of(b, {2, 4}).LayerNorm({2})),
    FAILS("group_norm: the channels, axis 1 of [2, 4], do not divide into 3 groups",
          Of(b, {2, 4}).GroupNorm(3)),
    FAILS("rms_norm: axis 3 is outside of rank 2", Of(b, {2, 4}).RmsNorm(3)),
    FAILS("attention: queries [3, 4], keys [5, 2], values [5, 4], expected [..., L, D]",
          Of(b, {3, 4}).ScaledDotProductAttention(Of(b, {5, 2}), Of(b, {5, 4}))),
    FAILS("attention: the heads, axis -3 of the queries [3, 2, 4], are no multiple of those of "
          "keys [2, 5, 4]",
          Of(b, {3, 2, 4})
              .ScaledDotProductAttention(Of(b, {2, 5, 4}), Of(b, {2, 5, 4}), {}, false, {}, true)),
    FAILS("rope: [3, 4] by cosines [3, 3] and sines [3, 3], expected [..., length, D]",
          Of(b, {3, 4}).Rope(Of(b, {3, 3}), Of(b, {3, 3}))),
};

TEST(ProductGraphTest, ErrorsNameTheOperationAndTheShapes) {
  for (const Error& e : kErrors) {
    Builder b;
    EXPECT_FALSE(e.run(b).valid()) << e.message;
    EXPECT_EQ(b.status().code(), absl::StatusCode::kInvalidArgument) << e.message;
    EXPECT_THAT(std::string(b.status().message()), HasSubstr(std::string(e.message)));
  }
}

// --- Kernels ---

// Of the gradients of `run` of `in`, given the gradient of its result; of run itself if `wrt` is
// negative.
Explanation Explain(const std::vector<Shape>& in, Tensor (*run)(const std::vector<Tensor>& in),
                    int wrt) {
  Builder b;
  std::vector<Tensor> params;
  for (const Shape& shape : in) params.push_back(Of(b, shape));
  const Tensor y = run(params);
  if (wrt < 0) {
    b.Output(y, "y");
  } else {
    const Tensor g = Of(b, Shape(y.shape().begin(), y.shape().end()));
    b.Output(Gradients((y * g).Sum(), std::span(&params[static_cast<size_t>(wrt)], 1))[0], "dx");
  }
  const absl::StatusOr<Plan> plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  for (uint32_t id : PostOrder(plan->graph.root())) {
    EXPECT_NE(Name(plan->graph.root().graph()->op(id)), Name(Op::kScatter));
  }
  Budget budget;
  auto out = ExplainGraph(plan->graph.root(), {}, HostShape(1), &budget);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *std::move(out) : Explanation{};
}

// Backwards a convolution costs what it costs forwards: no product of all windows is stored.
TEST(ProductGraphTest, GradientsOfConvolutionsAreConvolutions) {
  // So few channels that no other form of the convolution is faster.
  const std::vector<Shape> in = {{4, 16, 32, 32}, {16, 16, 3, 3}};
  const auto conv = [](const std::vector<Tensor>& x) { return x[0].Conv(x[1], {.pads = {1}}); };
  const Explanation forward = Explain(in, conv, -1);
  ASSERT_EQ(forward.kernels.size(), 1u);
  for (int wrt : {0, 1}) {
    const Explanation e = Explain(in, conv, wrt);
    EXPECT_EQ(e.kernels.size(), 1u) << wrt;
    EXPECT_LT(e.flops, 1.05 * forward.flops) << wrt;
    EXPECT_EQ(e.arena_bytes, 0) << wrt;
  }
  const auto strided = [](const std::vector<Tensor>& x) {
    return x[0].Conv(x[1], {.stride = {2}, .pads = {1}});
  };
  const std::vector<Shape> wide = {{4, 64, 32, 32}, {64, 64, 3, 3}};
  const Explanation half = Explain(wide, strided, -1);
  const Explanation e = Explain(wide, strided, 0);
  EXPECT_EQ(e.kernels.size(), 2u);
  // Vectors of the positions between strides overhang; those of the channels do not.
  EXPECT_LT(e.flops, 1.15 * half.flops);
}

template <int64_t kBy>
Tensor DilatedConv(const std::vector<Tensor>& x) {
  return x[0].Conv(x[1], {.dilation = {kBy}, .pads = {kBy}});
}

// Windows of 3 x 3 that are dilated: what meets padding is not multiplied. Beyond the image only
// the center is left; by 12 of 14 pixels, two of 14 rows see each outer row of taps, and two
// columns each outer column, but for the corners, which are computed with their row. A few pixels
// of padding are multiplied with the rest.
TEST(ProductGraphTest, TapsThatMostlyMeetPaddingAreNotMultiplied) {
  const std::vector<Shape> in = {{1, 32, 14, 14}, {32, 32, 3, 3}};
  const double pixel = 2 * 32 * 32;
  EXPECT_LT(Explain(in, DilatedConv<24>, -1).flops, 1.2 * 14 * 14 * pixel);
  const double seen = 14 * 14 + 2 * (14 * 2) + 2 * (3 * 2 * 14);
  EXPECT_LT(Explain(in, DilatedConv<12>, -1).flops, 1.4 * seen * pixel);
  EXPECT_EQ(Explain(in, DilatedConv<5>, -1).kernels.size(), 1u);
}

// What a pool makes is the input of a product: among its terms it would be computed without lanes.
TEST(ProductGraphTest, PoolsBeforeNarrowConvolutionsAreStored) {
  const auto conv = [](const std::vector<Tensor>& x) {
    return x[0].MaxPool({3, 3}, {.stride = {2}}).Conv(x[1]);
  };
  EXPECT_EQ(Explain({{1, 64, 57, 57}, {16, 64, 1, 1}}, conv, -1).kernels.size(), 2u);
}

struct Launches {
  std::string_view name;
  std::vector<Shape> in;
  Tensor (*run)(const std::vector<Tensor>& in);
  size_t forward, backward;
};

const Launches kLaunches[] = {
    {"max_pool",
     {{4, 16, 32, 32}},
     [](const std::vector<Tensor>& x) {
       return x[0].MaxPool({3, 3}, {.stride = {2}, .pads = {1}});
     },
     1,
     2},
    {"avg_pool",
     {{4, 16, 32, 32}},
     [](const std::vector<Tensor>& x) {
       return x[0].AvgPool({3, 3}, {.stride = {2}, .pads = {1}});
     },
     1,
     1},
    {"nearest by whole numbers",
     {{4, 16, 32, 32}},
     [](const std::vector<Tensor>& x) {
       return x[0].Interpolate({64, 64}, Interpolation::kNearest);
     },
     1,
     1},
    // The weights of each line, then the image.
    {"linear",
     {{4, 16, 32, 32}},
     [](const std::vector<Tensor>& x) { return x[0].Interpolate({48, 48}); },
     2,
     2},
    {"rope",
     {{4, 12, 128, 64}, {128, 32}, {128, 32}},
     [](const std::vector<Tensor>& x) { return x[0].Rope(x[1], x[2]); },
     2,  // which of a pair is the first is a kernel of two elements
     2},
};

TEST(ProductGraphTest, Launches) {
  for (const Launches& l : kLaunches) {
    EXPECT_LE(Explain(l.in, l.run, -1).kernels.size(), l.forward) << l.name;
    EXPECT_LE(Explain(l.in, l.run, 0).kernels.size(), l.backward) << l.name;
  }
}

}  // namespace
}  // namespace telegrad::testing
