// ai.onnx.ml and operators on strings. Numbers of trees and encoders are those of the examples in
// the ONNX project's own backend tests (Apache-2.0); the others were computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "engine/base/strings.h"
#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::Attributes;
using test::Floats;
using test::Ints;
using test::ModelWriter;
using test::Names;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

OnnxData Text(const Names& values) {
  return {.kind = OnnxData::Kind::kStrings,
          .strings = {{static_cast<int64_t>(values.size())}, values}};
}
OnnxData Numbers(HostTensor value) {
  return {.kind = OnnxData::Kind::kTensor, .tensor = std::move(value)};
}

// A node of one input, whose value is given at import, and its results.
struct MlNode {
  std::string op;
  Attributes attributes = {};
  int64_t ml_opset = 5;
  std::string domain = "ai.onnx.ml";

  absl::StatusOr<std::vector<OnnxData>> operator()(const OnnxData& x, const Names& results = {"y"},
                                                   bool give = true) const {
    const bool text = x.kind == OnnxData::Kind::kStrings;
    ModelWriter writer;
    std::string tensor, type, info;
    PutVarintField(field::kElemType, text ? kStringType : Info(x.tensor.dtype).onnx, &tensor);
    std::string dims, dim;
    for (const int64_t size : text ? x.strings.shape : x.tensor.shape) {
      dim.clear();
      PutVarintField(field::kDimValue, static_cast<uint64_t>(size), &dim);
      PutBytesField(field::kDim, dim, &dims);
    }
    PutBytesField(field::kTypeShape, dims, &tensor);
    PutBytesField(field::kTensorType, tensor, &type);
    PutBytesField(field::kValueName, "x", &info);
    PutBytesField(field::kValueType, type, &info);
    writer.RawInput(info).Node(op, {"x"}, results, attributes, domain);
    for (const std::string& result : results) writer.Output(result);
    const std::string file = writer.File(20, ml_opset);
    ImportOptions options;
    if (give) options.values.emplace("x", std::make_shared<const OnnxData>(x));
    TG_ASSIGN_OR_RETURN(const OnnxPlan onnx, ImportOnnx(file, options));
    std::vector<std::vector<uint8_t>> slots;
    for (const Slot& slot : onnx.plan.slots) {
      slots.emplace_back(BytesOf(slot.dtype, NumElements(slot.shape)));
    }
    for (const OnnxWeight& w : onnx.weights) slots[w.slot].assign(w.bytes.begin(), w.bytes.end());
    if (!text) slots[onnx.inputs[0].slot].assign(x.tensor.bytes.begin(), x.tensor.bytes.end());
    Budget budget;
    TG_RETURN_IF_ERROR(reference::Evaluate(onnx.plan.graph.root(), slots, &budget));
    std::vector<OnnxData> out;
    for (const OnnxValue& value : onnx.outputs) {
      if (value.kind == OnnxValue::Kind::kFixed) {
        out.push_back(*value.fixed);
        continue;
      }
      const Slot& slot = onnx.plan.slots[value.slot];
      const std::vector<uint8_t>& bytes = slots[value.slot];
      out.push_back(Numbers({slot.dtype, slot.shape, std::string(bytes.begin(), bytes.end())}));
    }
    return out;
  }
};

void ExpectFloats(const absl::StatusOr<std::vector<OnnxData>>& got, size_t i, const Shape& shape,
                  const std::vector<float>& want) {
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_LT(i, got->size());
  EXPECT_EQ((*got)[i].tensor.shape, shape);
  ASSERT_EQ((*got)[i].tensor.dtype, DType::kFloat32);
  EXPECT_THAT((*got)[i].tensor.Values<float>(), Pointwise(FloatNear(1e-5f), want));
}

TEST(MlLabels, StringsBecomeNumbersAndNumbersStrings) {
  const MlNode forth{"LabelEncoder",
                     {{"keys_strings", Names{"a", "b", "a"}},
                      {"values_int64s", Ints{0, 1, 2}},
                      {"default_int64", int64_t{42}}}};
  auto got = forth(Text({"a", "b", "d"}));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].tensor.Values<int64_t>(), ElementsAre(2, 1, 42));  // the last key counts
  MlNode old = forth;
  old.ml_opset = 2;
  got = old(Text({"a"}));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].tensor.Values<int64_t>(), ElementsAre(0));
  const MlNode back{
      "LabelEncoder",
      {{"keys_floats", std::vector<float>{1, NAN}}, {"values_strings", Names{"one", "none"}}}};
  got = back(Numbers(Floats({3}, {NAN, 1, 7})));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].strings.values, ElementsAre("none", "one", "_Unused"));
  // Strings that only a run would tell are refused, with the input that decides them.
  EXPECT_THAT(std::string(ToStd(back(Numbers(Floats({1}, {1})), {"y"}, false).status().message())),
              HasSubstr("'x'"));
}

// Many keys are found by a hash: the last of repeated ones counts, a NaN is one, and zeros of
// both signs are the same.
TEST(MlLabels, ManyKeysAreFound) {
  std::mt19937_64 random(3);
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const size_t n : {15, 16, 17, 100}) {
    SCOPED_TRACE(n);
    Ints keys(n), values(n), asked = {kLeast, kLeast + 1, -1, 0, 1, -kLeast - (kLeast + 2)};
    std::map<int64_t, int64_t> table;
    for (size_t i = 0; i < n; ++i) {
      keys[i] = i < 2 ? kLeast + static_cast<int64_t>(i) : static_cast<int64_t>(random() % n) - 5;
      values[i] = static_cast<int64_t>(random() % 1000);
      table[keys[i]] = values[i];
    }
    for (size_t i = 0; i < n; ++i) asked.push_back(static_cast<int64_t>(random() % n) - 7);
    Ints want;
    for (const int64_t x : asked) want.push_back(table.contains(x) ? table[x] : -1);
    const auto got = MlNode{"LabelEncoder", {{"keys_int64s", keys}, {"values_int64s", values}}}(
        Numbers(HostTensor::Of<int64_t>({static_cast<int64_t>(asked.size())}, asked)));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].tensor.Values<int64_t>(), want);
  }
  std::vector<float> keys, values;
  for (int i = 0; i < 40; ++i) {
    keys.push_back(i == 7 || i == 30 ? NAN : static_cast<float>(i % 23) - 10);
    values.push_back(static_cast<float>(i));
  }
  const MlNode floats{"LabelEncoder",
                      {{"keys_floats", keys}, {"values_floats", values}, {"default_float", -9.f}}};
  ExpectFloats(floats(Numbers(Floats({6}, {NAN, -0.0f, 12, 12.5f, -INFINITY, -10}))), 0, {6},
               {30, 33, 22, -9, -9, 23});
  const MlNode nothing{
      "LabelEncoder",
      {{"keys_floats", std::vector<float>(20, NAN)}, {"values_floats", std::vector<float>(20, 4)}}};
  ExpectFloats(nothing(Numbers(Floats({2}, {NAN, 0}))), 0, {2}, {4, 0});
}

TEST(MlLabels, ClassesAndCategoriesGoBothWays) {
  const MlNode classes{"LabelEncoder", {{"classes_strings", Names{"x", "y"}}}, 1};
  auto got = classes(Text({"y", "z"}));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].tensor.Values<int64_t>(), ElementsAre(1, -1));
  got = classes(Numbers(HostTensor::Of<int64_t>({2}, {1, 9})));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].strings.values, ElementsAre("y", "_Unused"));
  const MlNode mapper{"CategoryMapper",
                      {{"cats_strings", Names{"x", "y"}},
                       {"cats_int64s", Ints{7, 8}},
                       {"default_int64", int64_t{-5}}}};
  got = mapper(Text({"y", "?"}));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].tensor.Values<int64_t>(), ElementsAre(8, -5));
}

TEST(MlLabels, CategoriesOfStringsAreColumns) {
  const MlNode node{"OneHotEncoder", {{"cats_strings", Names{"p", "q"}}}};
  ExpectFloats(node(Text({"q", "r"})), 0, {2, 2}, {0, 1, 0, 0});
  MlNode strict = node;
  strict.attributes["zeros"] = int64_t{0};
  EXPECT_EQ(strict(Text({"r"})).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MlLabels, ZipMapGivesTheScores) {
  const MlNode node{"ZipMap", {{"classlabels_strings", Names{"p", "q"}}}};
  ExpectFloats(node(Numbers(Floats({1, 2}, {3, 4}))), 0, {1, 2}, {3, 4});
  EXPECT_FALSE(node(Numbers(Floats({1, 3}, {3, 4, 5}))).ok());
}

HostTensor Modes(std::initializer_list<uint8_t> modes) {
  return HostTensor::Of<uint8_t>({static_cast<int64_t>(modes.size())}, modes);
}

TEST(MlTrees, MembershipOfSets) {
  const MlNode node{"TreeEnsemble",
                    {{"n_targets", int64_t{4}},
                     {"membership_values", Floats({8}, {1.2f, 3.7f, 8, 9, NAN, 12, 7, NAN})},
                     {"tree_roots", Ints{0}},
                     {"nodes_modes", Modes({0, 6, 6})},
                     {"nodes_featureids", Ints{0, 0, 0}},
                     {"nodes_splits", Floats({3}, {11, 232344, NAN})},
                     {"nodes_trueleafs", Ints{0, 1, 1}},
                     {"nodes_truenodeids", Ints{1, 0, 1}},
                     {"nodes_falseleafs", Ints{1, 0, 1}},
                     {"nodes_falsenodeids", Ints{2, 2, 3}},
                     {"leaf_targetids", Ints{0, 1, 2, 3}},
                     {"leaf_weights", Floats({4}, {1, 10, 1000, 100})}}};
  ExpectFloats(node(Numbers(Floats({6, 1}, {1.2f, 3.4f, -0.12f, NAN, 12, 7}))), 0, {6, 4},
               {1, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 100, 0, 0, 1000, 0, 0, 0, 1000, 0, 0, 10, 0, 0});
  MlNode short_of_sets = node;
  short_of_sets.attributes["membership_values"] = Floats({2}, {1, NAN});
  EXPECT_THAT(std::string(ToStd(short_of_sets(Numbers(Floats({1, 1}, {0}))).status().message())),
              HasSubstr("'membership_values' has 1 sets"));
}

// Two stumps: the first votes 1 or 2 for target 0, the second 3 or 5.
TEST(MlTrees, FoldsOfVotes) {
  const auto run = [](int64_t fold) {
    const MlNode node{"TreeEnsemble",
                      {{"aggregate_function", fold},
                       {"n_targets", int64_t{2}},
                       {"tree_roots", Ints{0, 1}},
                       {"nodes_modes", Modes({1, 1})},
                       {"nodes_featureids", Ints{0, 0}},
                       {"nodes_splits", Floats({2}, {0, 0})},
                       {"nodes_trueleafs", Ints{1, 1}},
                       {"nodes_truenodeids", Ints{0, 2}},
                       {"nodes_falseleafs", Ints{1, 1}},
                       {"nodes_falsenodeids", Ints{1, 3}},
                       {"leaf_targetids", Ints{0, 0, 0, 0}},
                       {"leaf_weights", Floats({4}, {1, 2, 3, 5})}}};
    return node(Numbers(Floats({2, 1}, {-1, 1})));
  };
  ExpectFloats(run(0), 0, {2, 2}, {2, 0, 3.5, 0});
  ExpectFloats(run(1), 0, {2, 2}, {4, 0, 7, 0});
  ExpectFloats(run(2), 0, {2, 2}, {1, 0, 2, 0});
  ExpectFloats(run(3), 0, {2, 2}, {3, 0, 5, 0});
}

TEST(MlTrees, LabelsThatAreStringsAndTablesOfDoubles) {
  const MlNode node{"TreeEnsembleClassifier",
                    {{"nodes_treeids", Ints{0, 0, 0}},
                     {"nodes_nodeids", Ints{0, 1, 2}},
                     {"nodes_featureids", Ints{0, 0, 0}},
                     {"nodes_values_as_tensor", HostTensor::Of<double>({3}, {0.5, 0, 0})},
                     {"nodes_modes", Names{"BRANCH_LEQ", "LEAF", "LEAF"}},
                     {"nodes_truenodeids", Ints{1, 0, 0}},
                     {"nodes_falsenodeids", Ints{2, 0, 0}},
                     {"class_treeids", Ints{0, 0}},
                     {"class_nodeids", Ints{1, 2}},
                     {"class_ids", Ints{0, 1}},
                     {"class_weights_as_tensor", HostTensor::Of<double>({2}, {1, 1})},
                     {"classlabels_strings", Names{"low", "high"}}},
                    3};
  const auto got = node(Numbers(Floats({2, 1}, {0, 1})), {"y", "z"});
  ExpectFloats(got, 1, {2, 2}, {1, 0, 0, 1});
  EXPECT_THAT((*got)[0].strings.values, ElementsAre("low", "high"));
}

// One support vector (1, 2) of weight 3: f(x) = 3 K(x, v) + 0.5.
TEST(MlSvm, Kernels) {
  const auto run = [](const std::string& kernel) {
    const MlNode node{"SVMRegressor",
                      {{"kernel_type", kernel},
                       {"kernel_params", std::vector<float>{0.5f, 1, 2}},
                       {"support_vectors", std::vector<float>{1, 2}},
                       {"coefficients", std::vector<float>{3}},
                       {"rho", std::vector<float>{0.5f}},
                       {"n_supports", int64_t{1}}},
                      1};
    return node(Numbers(Floats({1, 2}, {2, -1})));
  };
  ExpectFloats(run("LINEAR"), 0, {1, 1}, {0.5f});
  ExpectFloats(run("POLY"), 0, {1, 1}, {3.5f});
  ExpectFloats(run("SIGMOID"), 0, {1, 1}, {3 * std::tanh(1.0f) + 0.5f});
  ExpectFloats(run("RBF"), 0, {1, 1}, {3 * std::exp(-5.0f) + 0.5f});
}

// f(x) = x1 - x2 for the first class; p = 1 / (1 + exp(-f)).
TEST(MlSvm, TwoClasses) {
  MlNode node{"SVMClassifier",
              {{"kernel_type", "LINEAR"},
               {"support_vectors", std::vector<float>{1, 0, 0, 1}},
               {"vectors_per_class", Ints{1, 1}},
               {"coefficients", std::vector<float>{1, -1}},
               {"rho", std::vector<float>{0}},
               {"classlabels_ints", Ints{5, 6}}},
              1};
  const OnnxData x = Numbers(Floats({2, 2}, {3, 1, 0, 1}));
  auto got = node(x, {"y", "z"});
  ExpectFloats(got, 1, {2, 2}, {-2, 2, 1, -1});
  EXPECT_THAT((*got)[0].tensor.Values<int64_t>(), ElementsAre(5, 6));
  node.attributes["prob_a"] = std::vector<float>{-1};
  node.attributes["prob_b"] = std::vector<float>{0};
  got = node(x, {"y", "z"});
  ASSERT_TRUE(got.ok()) << got.status();
  const float p = 1 / (1 + std::exp(-2.0f)), q = 1 / (1 + std::exp(1.0f));
  EXPECT_THAT((*got)[1].tensor.Values<float>(),
              Pointwise(FloatNear(5e-3f), std::vector<float>{p, 1 - p, q, 1 - q}));
}

TEST(Regex, MatchesWholeStrings) {
  MlNode node{"RegexFullMatch", {{"pattern", R"(www\.[\w.-]+\.\bcom\b)"}}, 0, ""};
  auto got = node(Text({"www.google.com", "www.facebook.com", "www.bbc.co.uk", "x www.a.com"}));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].tensor.bytes, std::string("\1\1\0\0", 4));
  node.attributes["pattern"] = "(";
  EXPECT_THAT(std::string(ToStd(node(Text({"a"})).status().message())), HasSubstr("'pattern'"));
}

}  // namespace
}  // namespace telegrad::onnx
