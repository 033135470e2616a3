// Shapes that each run decides: one import for all values, compared with plain loops.
#include <algorithm>
#include <random>

#include "engine/frontend/onnx/test_run_sizes.h"

namespace telegrad::onnx {
namespace {

using test::Graph;
using test::Import;
using test::Ints;
using test::ModelWriter;
using test::Results;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

HostTensor Mask(const std::vector<int>& values) {
  return {DType::kBool, {static_cast<int64_t>(values.size())}, {values.begin(), values.end()}};
}

// Of few values, so that some are 0 and some are the same.
HostTensor Few(const Shape& shape, std::mt19937_64* random, int zeros = 2) {
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  for (float& v : values) {
    v = static_cast<float>(std::max(static_cast<int>((*random)() % 6) - zeros, 0));
  }
  return HostTensor::Of<float>(shape, values);
}

TEST(RunSizes, NonZeroHasTheCountOfEachRun) {
  const OnnxPlan onnx = Import(ModelWriter()
                                   .Input("x", DType::kFloat32, {3, 5})
                                   .Node("NonZero", {"x"}, {"y"})
                                   .Output("y", DType::kInt64, {2, -1})
                                   .File(13));
  std::mt19937_64 random(1);
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    const HostTensor x = Few({3, 5}, &random, round);  // the last ones are 0 throughout
    Ints rows, columns;
    const auto values = x.Values<float>();
    for (int64_t i = 0; i < 15; ++i) {
      if (values[i] == 0) continue;
      rows.push_back(i / 5);
      columns.push_back(i % 5);
    }
    const auto got = Results(onnx, {x});
    EXPECT_THAT(got[0].shape, ElementsAre(2, rows.size()));
    Ints want = rows;
    want.insert(want.end(), columns.begin(), columns.end());
    EXPECT_EQ(got[0].Values<int64_t>(), want);
  }
}

// What is taken is computed with, folded, reshaped, joined and measured.
TEST(RunSizes, WhatDependsOnASizeOfTheRunFollowsIt) {
  const OnnxPlan onnx =
      Import(ModelWriter()
                 .Input("x", DType::kFloat32, {6, 2})
                 .Input("c", DType::kBool, {6})
                 .Initializer("flat", HostTensor::Of<int64_t>({1}, {-1}))
                 .Initializer("axis", HostTensor::Of<int64_t>({1}, {0}))
                 .Initializer("zero", HostTensor::Of<int64_t>({}, {0}))
                 .Initializer("one", HostTensor::Of<int64_t>({}, {1}))
                 .Initializer("pair", HostTensor::Of<int64_t>({1}, {2}))
                 .Node("Compress", {"x", "c"}, {"t"}, {{"axis", int64_t{0}}})
                 .Node("Mul", {"t", "t"}, {"squares"})
                 .Node("ReduceSum", {"squares", "axis"}, {"sum"}, {{"keepdims", int64_t{0}}})
                 .Node("Reshape", {"squares", "flat"}, {"row"})
                 .Node("Shape", {"t"}, {"shape"})
                 .Node("Gather", {"shape", "zero"}, {"n"})
                 .Node("Range", {"zero", "n", "one"}, {"range"})
                 .Node("Unsqueeze", {"n", "axis"}, {"n1"})
                 .Node("Concat", {"n1", "pair"}, {"to"}, {{"axis", int64_t{0}}})
                 .Node("ConstantOfShape", {"to"}, {"zeros"})
                 .Node("Concat", {"zeros", "t", "x"}, {"all"}, {{"axis", int64_t{0}}})
                 .Node("Transpose", {"t"}, {"turned"})
                 .Node("MatMul", {"t", "turned"}, {"product"})
                 .Node("Softmax", {"product"}, {"soft"}, {{"axis", int64_t{1}}})
                 .Output("squares")
                 .Output("sum")
                 .Output("row")
                 .Output("range")
                 .Output("all")
                 .Output("soft")
                 .File(13));
  std::mt19937_64 random(2);
  for (const std::vector<int>& mask : std::vector<std::vector<int>>{
           {0, 1, 0, 1, 1, 0}, {1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 0}}) {
    const HostTensor x = test::Random({6, 2}, &random);
    const auto values = x.Values<float>();
    std::vector<float> taken, squares, sum = {0, 0};
    for (size_t i = 0; i < 12; ++i) {
      if (mask[i / 2] == 0) continue;
      taken.push_back(values[i]);
      squares.push_back(values[i] * values[i]);
      sum[i % 2] += squares.back();
    }
    const auto n = static_cast<int64_t>(taken.size()) / 2;
    SCOPED_TRACE(n);
    const auto got = Results(onnx, {x, Mask(mask)});
    EXPECT_THAT(got[0].shape, ElementsAre(n, 2));
    EXPECT_EQ(got[0].Values<float>(), squares);
    EXPECT_EQ(got[1].Values<float>(), sum);
    EXPECT_THAT(got[2].shape, ElementsAre(2 * n));
    EXPECT_EQ(got[2].Values<float>(), squares);
    EXPECT_THAT(got[3].shape, ElementsAre(n));
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(got[3].Values<int64_t>()[i], i);
    std::vector<float> all(taken.size(), 0);
    all.insert(all.end(), taken.begin(), taken.end());
    all.insert(all.end(), values.begin(), values.end());
    EXPECT_EQ(got[4].Values<float>(), all);
    EXPECT_THAT(got[5].shape, ElementsAre(n, n));
    float ones = 0;
    for (const float v : got[5].Values<float>()) ones += v;
    EXPECT_NEAR(ones, static_cast<float>(n), 1e-4);
  }
}

// The first of each value, where each element's is, and how often it is there.
TEST(RunSizes, UniqueSortsOrKeepsTheOrder) {
  for (const int64_t sorted : {1, 0}) {
    const OnnxPlan onnx =
        Import(ModelWriter()
                   .Input("x", DType::kFloat32, {9})
                   .Node("Unique", {"x"}, {"y", "first", "inverse", "counts"}, {{"sorted", sorted}})
                   .Output("y")
                   .Output("first")
                   .Output("inverse")
                   .Output("counts")
                   .File(13));
    std::mt19937_64 random(3);
    for (int round = 0; round < 5; ++round) {
      SCOPED_TRACE(round);
      const HostTensor x = Few({9}, &random, round);
      const auto values = x.Values<float>();
      std::vector<float> distinct;
      for (const float v : values) {
        if (std::ranges::find(distinct, v) == distinct.end()) distinct.push_back(v);
      }
      if (sorted != 0) std::ranges::sort(distinct);
      Ints first, inverse, counts(distinct.size(), 0);
      for (const float v : distinct) first.push_back(std::ranges::find(values, v) - values.begin());
      for (const float v : values) {
        inverse.push_back(std::ranges::find(distinct, v) - distinct.begin());
        ++counts[static_cast<size_t>(inverse.back())];
      }
      const auto got = Results(onnx, {x});
      EXPECT_EQ(got[0].Values<float>(), distinct);
      EXPECT_EQ(got[1].Values<int64_t>(), first);
      EXPECT_EQ(got[2].Values<int64_t>(), inverse);
      EXPECT_EQ(got[3].Values<int64_t>(), counts);
    }
  }
}

TEST(RunSizes, TopKTakesAsManyAsTheRunSays) {
  const OnnxPlan onnx = Import(ModelWriter()
                                   .Input("x", DType::kFloat32, {2, 6})
                                   .Input("k", DType::kInt64, {1})
                                   .Node("TopK", {"x", "k"}, {"y", "at"})
                                   .Output("y")
                                   .Output("at")
                                   .File(13));
  const HostTensor x = HostTensor::Of<float>({2, 6}, {3, 9, 1, 7, 5, 2, -1, -9, -2, -3, -4, -8});
  const auto got = Results(onnx, {x, HostTensor::Of<int64_t>({1}, {2})});
  EXPECT_THAT(got[0].Values<float>(), ElementsAre(9, 7, -1, -2));
  EXPECT_THAT(got[1].Values<int64_t>(), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(Results(onnx, {x, HostTensor::Of<int64_t>({1}, {6})})[0].shape, ElementsAre(2, 6));
  EXPECT_THAT(Results(onnx, {x, HostTensor::Of<int64_t>({1}, {0})})[0].shape, ElementsAre(2, 0));
}

// Begins and ends as NumPy's, of which the run gives any.
TEST(RunSizes, SlicesBeginAndEndWhereTheRunSays) {
  for (const int64_t step : {1, 2, -1}) {
    const OnnxPlan onnx = Import(ModelWriter()
                                     .Input("x", DType::kFloat32, {7})
                                     .Input("begin", DType::kInt64, {1})
                                     .Input("end", DType::kInt64, {1})
                                     .Initializer("axes", HostTensor::Of<int64_t>({1}, {0}))
                                     .Initializer("steps", HostTensor::Of<int64_t>({1}, {step}))
                                     .Node("Slice", {"x", "begin", "end", "axes", "steps"}, {"y"})
                                     .Output("y")
                                     .File(13));
    const HostTensor x = HostTensor::Of<float>({7}, {0, 1, 2, 3, 4, 5, 6});
    for (const int64_t begin : {int64_t{0}, int64_t{2}, int64_t{-3}, int64_t{9}, int64_t{-9}}) {
      for (const int64_t end : {INT64_MAX, int64_t{5}, int64_t{-1}, int64_t{0}, INT64_MIN + 1}) {
        const auto clamp = [&](int64_t at) {
          const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? 7 : 6;
          return std::clamp(at < 0 ? std::max<int64_t>(at, -8) + 7 : at, low, high);
        };
        std::vector<float> want;
        // A begin before the first element is that element, also of a falling slice.
        const int64_t first = step > 0 ? clamp(begin) : std::max<int64_t>(clamp(begin), 0);
        for (int64_t i = first; step > 0 ? i < clamp(end) : i > clamp(end); i += step) {
          want.push_back(static_cast<float>(i));
        }
        const auto got = Results(
            onnx, {x, HostTensor::Of<int64_t>({1}, {begin}), HostTensor::Of<int64_t>({1}, {end})});
        EXPECT_THAT(got[0].Values<float>(), ElementsAreArray(want))
            << begin << " to " << end << " by " << step;
      }
    }
  }
}

TEST(RunSizes, BranchesOfOtherSizesAreTakenByTheRun) {
  const OnnxPlan onnx = Import(
      ModelWriter()
          .Input("x", DType::kFloat32, {3})
          .Input("c", DType::kBool, {})
          .Node(
              "If", {"c"}, {"y"},
              {{"then_branch", Graph{ModelWriter()
                                         .Node("Concat", {"x", "x"}, {"a"}, {{"axis", int64_t{0}}})
                                         .Output("a")
                                         .graph()}},
               {"else_branch", Graph{ModelWriter().Node("Neg", {"x"}, {"b"}).Output("b").graph()}}})
          .Output("y")
          .File(13));
  const HostTensor x = HostTensor::Of<float>({3}, {1, 2, 3});
  const auto condition = [](char c) { return HostTensor{DType::kBool, {}, std::string(1, c)}; };
  EXPECT_THAT(Results(onnx, {x, condition(1)})[0].Values<float>(), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(Results(onnx, {x, condition(0)})[0].Values<float>(), ElementsAre(-1, -2, -3));
}

// The importer decides: where an operator has no form for all sizes, values that are given decide.
TEST(RunSizes, WhatHasNoFormForAllSizesIsImportedForTheValuesGiven) {
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {4})
                               .Input("y", DType::kFloat32, {2})
                               .Node("NonZero", {"x"}, {"at"})
                               .Node("Cast", {"at"}, {"f"}, {{"to", int64_t{1}}})
                               .Node("Add", {"f", "y"}, {"z"})  // of two elements
                               .Output("z")
                               .File(13);
  const absl::Status refused = ImportOnnx(file).status();
  EXPECT_TRUE(NeedsValues(refused)) << refused;
  EXPECT_THAT(refused.ToString(), HasSubstr("'x'"));
  EXPECT_THAT(refused.ToString(), HasSubstr("(Add)"));  // what has no form for all sizes
  ImportOptions options;
  const HostTensor x = HostTensor::Of<float>({4}, {0, 1, 0, 1});
  options.values["x"] =
      std::make_shared<const OnnxData>(OnnxData{.kind = OnnxData::Kind::kTensor, .tensor = x});
  const auto onnx = ImportOnnx(file, options);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  EXPECT_THAT(onnx->guards, ElementsAre("x"));
  const auto got = Results(*onnx, {x, HostTensor::Of<float>({2}, {10, 20})});
  EXPECT_THAT(got[0].Values<float>(), ElementsAre(11, 23));
}

// Of two inputs that share a dimension, which is a variable of the plan.
TEST(RunSizes, ADimensionMayBeChosenByEachRun) {
  const std::string file =
      ModelWriter()
          .Input("x", DType::kFloat32, {-1, 2})
          .Input("w", DType::kFloat32, {3, -1})
          .Initializer("flat", HostTensor::Of<int64_t>({2}, {0, -1}))
          .Node("Transpose", {"w"}, {"turned"})
          .Node("Concat", {"x", "turned"}, {"both"}, {{"axis", int64_t{1}}})
          .Node("Reshape", {"both", "flat"}, {"y"})
          .Node("ReduceMean", {"y"}, {"mean"}, {{"axes", Ints{0}}, {"keepdims", int64_t{0}}})
          .Output("y")
          .Output("mean")
          .File(13);
  ImportOptions options;
  options.ranges["N"] = {1, 4};
  const OnnxPlan onnx = Import(file, options);
  ASSERT_EQ(onnx.plan.variables.size(), 1u);
  EXPECT_EQ(onnx.plan.variables[0].name, "N");
  std::mt19937_64 random(6);
  for (int64_t n = 1; n <= 4; ++n) {
    SCOPED_TRACE(n);
    const HostTensor x = test::Random({n, 2}, &random), w = test::Random({3, n}, &random);
    std::vector<float> want, mean(5, 0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < 5; ++k) {
        const float v = k < 2 ? x.Values<float>()[2 * i + k] : w.Values<float>()[(k - 2) * n + i];
        want.push_back(v);
        mean[k] += v / static_cast<float>(n);
      }
    }
    const auto got = test::Run(onnx, {x, w}, {{"N", n}});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT((*got)[0].shape, ElementsAre(n, 5));
    EXPECT_EQ((*got)[0].Values<float>(), want);
    test::Expect((*got)[1], HostTensor::Of<float>({5}, mean));
  }
  options.ranges["N"] = {4, 1};
  EXPECT_TRUE(IsOptionsError(ImportOnnx(file, options).status()));
  options.ranges.clear();
  options.ranges["M"] = {1, 4};
  EXPECT_TRUE(IsOptionsError(ImportOnnx(file, options).status()));
}

// Detection networks join the boxes of each of their classes.
TEST(RunSizes, ManySizesAreAddedUp) {
  constexpr int64_t kParts = 300;
  const OnnxPlan onnx = Import(
      ModelWriter()
          .Input("x", DType::kFloat32, {3, 2})
          .Input("c", DType::kBool, {3})
          .Initializer("flat", HostTensor::Of<int64_t>({1}, {-1}))
          .Node("Compress", {"x", "c"}, {"t"}, {{"axis", int64_t{0}}})
          .Node("Concat", std::vector<std::string>(kParts, "t"), {"all"}, {{"axis", int64_t{0}}})
          .Node("Reshape", {"all", "flat"}, {"y"})
          .Output("y")
          .File(13));
  const auto got =
      Results(onnx, {HostTensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6}), Mask({0, 1, 0})});
  std::vector<float> want;
  for (int64_t i = 0; i < kParts; ++i) want.insert(want.end(), {3, 4});
  EXPECT_EQ(got[0].Values<float>(), want);
}

TEST(RunSizes, ResultsAreCutToTheirShape) {
  const HostTensor whole =
      HostTensor::Of<int64_t>({2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(*Cut(whole, Shape{2, 3, 2}), whole);
  EXPECT_EQ(*Cut(whole, Shape{2, 2, 2}),
            HostTensor::Of<int64_t>({2, 2, 2}, {0, 1, 2, 3, 6, 7, 8, 9}));
  EXPECT_EQ(*Cut(whole, Shape{1, 3, 1}), HostTensor::Of<int64_t>({1, 3, 1}, {0, 2, 4}));
  EXPECT_EQ(*Cut(whole, Shape{2, 1, 1}), HostTensor::Of<int64_t>({2, 1, 1}, {0, 6}));
  EXPECT_EQ(*Cut(whole, Shape{2, 0, 2}), HostTensor::Of<int64_t>({2, 0, 2}, {}));
  EXPECT_EQ(*Widen(HostTensor::Of<int64_t>({1, 2, 1}, {5, 6}), Shape{1, 3, 2}),
            HostTensor::Of<int64_t>({1, 3, 2}, {5, 0, 6, 0, 0, 0}));
  EXPECT_EQ(*Widen(HostTensor::Of<int64_t>({}, {5}), Shape{}), HostTensor::Of<int64_t>({}, {5}));
  EXPECT_FALSE(Widen(whole, Shape{2, 2, 2}).ok());
  for (const Shape& shape : std::vector<Shape>{{2, 4, 2}, {2, 3}, {-1, 3, 2}}) {
    EXPECT_EQ(Cut(whole, shape).status().code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace telegrad::onnx
