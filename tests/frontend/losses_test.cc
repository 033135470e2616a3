// Losses: value cases, see cases.h. Each case gives all three reductions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"

namespace telegrad::testing {
namespace {

using In = const Inputs&;
constexpr auto kLargest = Case::kLargest;

template <typename F>
Inputs Each(F f) {
  return {f(Reduction::kMean), f(Reduction::kSum), f(Reduction::kNone)};
}

constexpr Case kCases[] = {
    {"CrossEntropy", "cross_entropy_last",
     [](Builder&, In in) { return Inputs{in[0].CrossEntropy(in[1])}; }, 4, kLargest, true},
    {"CrossEntropy", "cross_entropy",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].CrossEntropy(in[1], r); });
     },
     8, kLargest, true},
    {"CrossEntropy", "cross_entropy_options",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].CrossEntropy(in[1], r, 0.1, -1, in[2]); });
     },
     8, kLargest},
    {"CrossEntropy", "cross_entropy_smooth",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].CrossEntropy(in[1], r, 0.2, -1); });
     },
     8, kLargest, true},
    {"CrossEntropy", "cross_entropy_probabilities",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].CrossEntropy(in[1], r, 0.1, {}, in[2]); });
     },
     8, kLargest, true},
    {"SparseCategoricalCrossEntropy", "sparse_categorical",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].SparseCategoricalCrossEntropy(in[1], r, 0.1); });
     },
     8, kLargest, true},
    {"NllLoss", "nll",
     [](Builder&, In in) { return Each([&](Reduction r) { return in[0].NllLoss(in[1], r); }); }, 4,
     kLargest, true},
    {"NllLoss", "nll_options",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].NllLoss(in[1], r, -1, in[2]); });
     },
     4, kLargest},
    {"BinaryCrossEntropy", "binary_cross_entropy",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].BinaryCrossEntropy(in[1], r); });
     },
     8, kLargest},
    {"BinaryCrossEntropy", "binary_cross_entropy_edge",
     [](Builder&, In in) { return Inputs{in[0].BinaryCrossEntropy(in[1], Reduction::kNone)}; }, 0,
     kLargest, true, 0.1, 0.9},
    {"BinaryCrossEntropyLogits", "binary_cross_entropy_logits",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].BinaryCrossEntropyLogits(in[1], r); });
     },
     8, kLargest, true},
    {"BinaryCrossEntropyLogits", "binary_cross_entropy_weighted",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].BinaryCrossEntropyLogits(in[1], r, in[2]); });
     },
     8, kLargest, true},
    {"MseLoss", "mse",
     [](Builder&, In in) { return Each([&](Reduction r) { return in[0].MseLoss(in[1], r); }); }, 4,
     kLargest, true},
    {"L1Loss", "l1",
     [](Builder&, In in) { return Each([&](Reduction r) { return in[0].L1Loss(in[1], r); }); }, 4,
     kLargest, true},
    {"SmoothL1Loss", "smooth_l1",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].SmoothL1Loss(in[1], r, 0.7); });
     },
     4, kLargest, true},
    {"HuberLoss", "huber",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].HuberLoss(in[1], r, 0.7); });
     },
     4, kLargest, true},
    {"KlDiv", "kl_div",
     [](Builder&, In in) { return Each([&](Reduction r) { return in[0].KlDiv(in[1], r); }); }, 8,
     kLargest, true, 0.1, 2},
    {"KlDiv", "kl_div_zero",
     [](Builder&, In in) {
       return Each([&](Reduction r) { return in[0].KlDiv(in[1].Detach(), r); });
     },
     8, kLargest},
};

TEST(LossesTest, Values) { CheckValues("losses", kCases); }
TEST(LossesTest, Gradients) { CheckGradients("losses", kCases); }

TEST(LossesTest, MistakesHaveMessages) {
  const struct {
    Tensor (*make)(const Tensor& x, const Tensor& labels, const Tensor& other);
    std::string_view message;
  } rows[] = {
      {[](const Tensor& x, const Tensor&, const Tensor& y) { return x.CrossEntropy(y); },
       "cross_entropy: f32 [4, 3], with the classes on the last axis, needs integer labels of all "
       "its other axes, got f32 [3]"},
      {[](const Tensor& x, const Tensor&, const Tensor& y) {
         return x.CrossEntropy(y, Reduction::kMean);
       },
       "cross_entropy: logits [4, 3] and probabilities [3], expected the same shape with classes "
       "on "
       "axis 1"},
      {[](const Tensor& x, const Tensor& l, const Tensor&) {
         return x.NllLoss(l, Reduction::kMean, {}, x);
       },
       "nll_loss: 3 classes with weights [4, 3], expected one of each"},
      {[](const Tensor& x, const Tensor& l, const Tensor&) {
         return x.Transpose().SparseCategoricalCrossEntropy(l);
       },
       "sparse_categorical_cross_entropy: f32 [3, 4], with the classes on the last axis, needs "
       "integer labels of all its other axes, got i64 [4]"},
      {[](const Tensor& x, const Tensor&, const Tensor& y) { return x.MseLoss(y.Reshape({3, 1})); },
       "mse_loss: shapes [4, 3] and [3, 1] do not broadcast: axis 0 has 4 and 3"},
  };
  for (const auto& row : rows) {
    Builder b;
    const Tensor x = b.Param(DType::kFloat32, {4, 3}, "x");
    const Tensor labels = b.Param(DType::kInt64, {4}, "labels");
    const Tensor y = b.Param(DType::kFloat32, {3}, "y");
    EXPECT_FALSE(row.make(x, labels, y).valid());
    EXPECT_THAT(std::string(b.status().message()), ::testing::HasSubstr(std::string(row.message)));
  }
}

}  // namespace

std::span<const Case> LossCases() { return kCases; }

}  // namespace telegrad::testing
