// The digits data set, layers, optimizers and the digits network: splits and batches, formulas
// of the papers, and a loss that falls.
#include "engine/frontend/nn/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/nn/datasets.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/test_eval.h"

namespace telegrad {
namespace {

using test::Bindings;
using test::Values;

constexpr char kDigits[] = "tests/data/digits/digits.csv.gz";

TEST(DatasetTest, DigitsSplitIsStratifiedAndFixed) {
  const absl::StatusOr<Digits> digits = ReadDigits(kDigits);
  ASSERT_TRUE(digits.ok()) << digits.status();
  EXPECT_EQ(digits->train.size() + digits->held_out.size(), 1797);
  EXPECT_NEAR(static_cast<double>(digits->held_out.size()), 1797 / 5.0, 10);
  EXPECT_EQ(digits->train.images.shape, (Shape{digits->train.size(), 1, 8, 8}));
  int counts[10] = {};
  for (int32_t label : digits->held_out.labels.Values<int32_t>()) ++counts[label];
  for (int count : counts) EXPECT_THAT(count, testing::AllOf(testing::Ge(34), testing::Le(37)));
  for (float v : digits->train.images.Values<float>()) ASSERT_TRUE(v >= 0 && v <= 1);
  EXPECT_EQ(ReadDigits(kDigits)->held_out.images, digits->held_out.images);
}

TEST(DatasetTest, BatchesCoverAnEpochOnce) {
  const Digits digits = *ReadDigits(kDigits);
  const int64_t n = digits.train.size();
  std::vector<int32_t> seen, all = digits.train.labels.Values<int32_t>();
  for (int64_t at = 0; at < n; at += 64) {
    const Examples batch = Batch(digits.train, 7, at, std::min<int64_t>(64, n - at));
    for (int32_t label : batch.labels.Values<int32_t>()) seen.push_back(label);
  }
  EXPECT_NE(seen, all);
  std::ranges::sort(seen);
  std::ranges::sort(all);
  EXPECT_EQ(seen, all);
}

TEST(DatasetTest, MissingAndDamagedFiles) {
  EXPECT_EQ(ReadDigits("tests/data/nobody.gz").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadDigits("tests/data/digits/NOTICE").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Adam against the algorithm of the paper, written out, on a loss with a known gradient.
TEST(OptimTest, AdamFollowsThePaper) {
  Builder b;
  const Tensor w = b.Trainable(DType::kFloat64, {2}, "w", Init::Constant(1));
  const Tensor x = b.Param(DType::kFloat64, {2}, "x");
  const Tensor loss = (w * w * x).Sum();
  optim::Adam(&b, {&w, 1}, Gradients(loss, {&w, 1}), {.lr = 0.1});
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Bindings bindings;
  test::BindInitialState(*plan, &bindings);
  double p[2] = {1, 1}, m[2] = {}, v[2] = {};
  for (int t = 1; t <= 5; ++t) {
    bindings["x"] = {0.5 * t, -2.0};
    test::Run(*plan, &bindings);
    for (int i = 0; i < 2; ++i) {
      const double g = 2 * p[i] * bindings["x"][i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      p[i] -= 0.1 * (m[i] / (1 - std::pow(0.9, t))) /
              (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
      EXPECT_NEAR(bindings["w"][i], p[i], 1e-9) << "step " << t;
    }
  }
}

TEST(OptimTest, SgdWithMomentum) {
  Builder b;
  const Tensor w = b.Trainable(DType::kFloat64, {}, "w", Init::Constant(1));
  optim::Sgd(&b, {&w, 1}, Gradients(w * w, {&w, 1}), {.lr = 0.1, .momentum = 0.5});
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Bindings bindings;
  test::BindInitialState(*plan, &bindings);
  test::Run(*plan, &bindings);
  EXPECT_NEAR(bindings["w"][0], 0.8, 1e-12);
  test::Run(*plan, &bindings);
  EXPECT_NEAR(bindings["w"][0], 0.8 - 0.1 * (0.5 * 2 + 1.6), 1e-12);
}

TEST(NnTest, LinearIsMatrixTimesVector) {
  Builder b;
  const nn::Linear layer(&b, "fc", 3, 2, {.dtype = DType::kFloat64});
  b.Output(layer(b.Param(DType::kFloat64, {1, 3}, "x")), "y");
  Bindings bindings = {{"x", {1, 2, 3}}, {"fc.weight", {1, 0, 0, 0, 1, 1}}, {"fc.bias", {10, 20}}};
  test::Run(*b.Finish(), &bindings);
  EXPECT_THAT(bindings["y"], testing::ElementsAre(11, 25));
}

TEST(NnTest, LayerNormScalesAndShiftsChannels) {
  Builder b;
  const nn::LayerNorm layer(&b, "norm", 2, {.dtype = DType::kFloat64}, 0);
  b.Output(layer(b.Param(DType::kFloat64, {2, 2}, "x")), "y");
  Bindings bindings = {{"x", {1, 3, 20, 10}}, {"norm.weight", {1, 5}}, {"norm.bias", {10, 100}}};
  test::Run(*b.Finish(), &bindings);
  EXPECT_THAT(bindings["y"],
              testing::ElementsAre(testing::DoubleNear(9, 1e-12), testing::DoubleNear(105, 1e-12),
                                   testing::DoubleNear(11, 1e-12), testing::DoubleNear(95, 1e-12)));
}

TEST(DigitsCnnTest, PlansShareTheirParameters) {
  const DigitsCnn model;
  const absl::StatusOr<Plan> train = model.TrainStep(64), eval = model.Eval(100);
  ASSERT_TRUE(train.ok()) << train.status();
  ASSERT_TRUE(eval.ok()) << eval.status();
  EXPECT_EQ(train->slots[train->Find("loss")].shape, (Shape{1}));
  EXPECT_EQ(train->slots[train->Find("correct")].dtype, DType::kInt32);
  EXPECT_EQ(eval->slots[eval->Find("logits")].shape, (Shape{100, 10}));
  EXPECT_EQ(eval->slots[eval->Find("predictions")].shape, (Shape{100}));
  for (const Slot& slot : eval->slots) {
    if (slot.role != SlotRole::kState) continue;
    const int other = train->Find(slot.name);
    ASSERT_GE(other, 0) << slot.name;
    EXPECT_EQ(*InitialValue(slot), *InitialValue(train->slots[other]));
  }
}

TEST(DigitsCnnTest, StepsReduceTheLoss) {
  const Digits digits = *ReadDigits(kDigits);
  const Plan train = *DigitsCnn{}.TrainStep(16);
  Bindings bindings;
  test::BindInitialState(train, &bindings);
  const Examples batch = Batch(digits.train, 1, 0, 16);
  bindings["images"] = batch.images.AsDoubles();
  bindings["labels"] = batch.labels.AsDoubles();
  Values losses;
  for (int step = 0; step < 6; ++step) {
    test::Run(train, &bindings);
    losses.push_back(bindings["loss"][0]);
  }
  EXPECT_NEAR(losses[0], std::log(10), 0.3);  // an untrained classifier of ten classes
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]);
  EXPECT_LT(losses.back(), losses[0] - 0.1);
}

}  // namespace
}  // namespace telegrad
