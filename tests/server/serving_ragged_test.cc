// Batches of requests of different lengths: inputs are padded to the longest, and outputs cut to
// their own length.
#include <future>
#include <random>

#include "server/serving/ragged.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RaggedSizesTest, FewSizesAreCompiled) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= 50; ++size) {
    const int64_t padded = PaddedSize(size);
    EXPECT_GE(padded, size);
    EXPECT_LE(padded, std::max<int64_t>(size + size / 2, 1));
    if (sizes.empty() || sizes.back() != padded) sizes.push_back(padded);
  }
  EXPECT_THAT(sizes, ElementsAre(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64));
  EXPECT_EQ(PaddedSize(0), 0);
  EXPECT_EQ(PaddedSize(INT64_MAX), INT64_MAX);
}

// Against one element at a time, for boxes of all kinds.
TEST(RaggedSizesTest, RunsAreTheBoxInOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Shape outer, box;
    for (size_t rank = random() % 5; outer.size() < rank;) {
      outer.push_back(1 + random() % 4);
      box.push_back(random() % 3 == 0 ? random() % (outer.back() + 1) : outer.back());
    }
    std::vector<int64_t> expected, got;
    for (int64_t i = 0; i < NumElements(outer); ++i) {
      int64_t rest = i;
      bool inside = true;
      for (size_t axis = outer.size(); axis-- > 0; rest /= outer[axis]) {
        inside &= rest % outer[axis] < box[axis];
      }
      if (inside) expected.push_back(i * 4);
    }
    ForEachRun(box, outer, 4, [&](int64_t offset, int64_t bytes) {
      for (int64_t at = 0; at < bytes; at += 4) got.push_back(offset + at);
    });
    ASSERT_EQ(got, expected) << ToString(box) << " of " << ToString(outer);
  }
}

class ServingRaggedTest : public ServingTest {
 protected:
  // The writer calls every dimension N; of each tensor the second one becomes S.
  static std::string WithLengths(std::string file) {
    constexpr std::string_view kParam("\x12\x01N", 3);
    bool second = false;
    for (size_t at = 0; (at = file.find(kParam, at)) != std::string::npos; at += kParam.size()) {
      if (std::exchange(second, !second)) file[at + 2] = 'S';
    }
    return file;
  }
  // y is x less the mean of what m marks of it, and s the sum of x.
  static std::string Masked() {
    const DType f = DType::kFloat32;
    return WithLengths(onnx::test::ModelWriter()
                           .Input("x", f, {-1, -1})
                           .Input("m", f, {-1, -1})
                           .Output("y", f, {-1, -1})
                           .Initializer("axes", HostTensor::Of<int64_t>({1}, {1}))
                           .Node("Mul", {"x", "m"}, {"xm"})
                           .Node("ReduceSum", {"xm", "axes"}, {"sum"})
                           .Node("ReduceSum", {"m", "axes"}, {"count"})
                           .Node("Div", {"sum", "count"}, {"mean"})
                           .Node("Sub", {"x", "mean"}, {"y"})
                           .File(13));
  }
  static std::string Config(std::string_view more = "") {
    return StrCat(R"(
      max_batch_size: 8
      input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true },
              { name: "m" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
      dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 60000000 }
      )",
                  more);
  }
  static inference::ModelInferRequest Lengths(int rows, int length, int mask_length) {
    std::vector<float> x, m(static_cast<size_t>(rows * mask_length), 1);
    for (int i = 0; i < rows * length; ++i) x.push_back(static_cast<float>(i % length));
    auto request = Floats("masked", {rows, length}, x);
    auto* mask = request.add_inputs();
    mask->set_name("m");
    mask->set_datatype("FP32");
    mask->add_shape(rows);
    mask->add_shape(mask_length);
    request.add_raw_input_contents(
        std::string(reinterpret_cast<const char*>(m.data()), m.size() * sizeof(float)));
    return request;
  }
};

TEST_F(ServingRaggedTest, RequestsOfDifferentLengthsShareABatch) {
  WriteModel("masked", Masked(), Config());
  StartServing();
  ASSERT_TRUE(BecomesReady("masked")) << ReasonOf("masked");
  const std::pair<int, int> shapes[] = {{1, 5}, {3, 2}, {1, 7}, {2, 4}, {1, 1}};  // 8 rows
  std::vector<std::future<absl::StatusOr<inference::ModelInferResponse>>> answers;
  for (const auto& [rows, length] : shapes) {
    answers.push_back(std::async(std::launch::async,
                                 [this, r = rows, l = length] { return Infer(Lengths(r, l, l)); }));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto [rows, length] = shapes[i];
    const auto answer = answers[i].get();
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_THAT(answer->outputs(0).shape(), ElementsAre(rows, length));
    std::vector<float> expected;
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < length; ++k) {
        expected.push_back(static_cast<float>(k) - static_cast<float>(length - 1) / 2);
      }
    }
    EXPECT_EQ(Values<float>(*answer), expected);
  }
  EXPECT_EQ(Statistics("masked").execution_count(), 1);
  EXPECT_EQ(Statistics("masked").inference_count(), 8);
  const absl::Status uneven = Infer(Lengths(1, 4, 3)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(uneven)) << uneven;
  EXPECT_THAT(std::string(uneven.message()), HasSubstr("the same size 'S'"));
}

TEST_F(ServingRaggedTest, WhatCannotBeCutIsRefused) {
  const std::string one = R"(max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true })";
  WriteModel("masked", Masked(), one + " dynamic_batching { }");  // m has S, too
  WriteModel("direct", WithLengths(AddModel(1, {-1, -1})), one);
  WriteModel("fixed", AddModel(1, {-1, 4}), R"(max_batch_size: 8 dynamic_batching { }
    input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] allow_ragged_batch: true })");
  WriteModel("other",
             WithLengths(onnx::test::ModelWriter()
                             .Input("x", DType::kFloat32, {-1, -1})
                             .Output("z", DType::kFloat32, {-1})
                             .Output("y", DType::kFloat32, {-1, -1})
                             .Node("Relu", {"x"}, {"y"})
                             .Node("Squeeze", {"x"}, {"z"})
                             .File(13)),
             one + " dynamic_batching { }");
  WriteModel("batched", Masked(), Config("batch_input [ { kind: BATCH_ELEMENT_COUNT } ]"));
  StartServing();
  const std::pair<std::string, std::string> reasons[] = {
      {"masked", "input 'm' has the dimension 'S' of an input with allow_ragged_batch"},
      {"direct", "allow_ragged_batch needs dynamic_batching"},
      {"fixed", "none of its dimensions is of any size"},
      {"other", "dimension 1 of output 'y' has no name that a dimension of an input has"},
      {"batched", "batch_input and batch_output are not supported"}};
  for (const auto& [model, reason] : reasons) EXPECT_THAT(ReasonOf(model), HasSubstr(reason));
}

// A table has 5 places: what is rounded up to 6 has no room in it, and what there is has.
TEST_F(ServingRaggedTest, SizesThatTheModelHasNoRoomForAreNotRoundedUp) {
  const DType f = DType::kFloat32;
  WriteModel("table",
             WithLengths(onnx::test::ModelWriter()
                             .Input("x", f, {-1, -1})
                             .Output("y", f, {-1, -1})
                             .Initializer("c", HostTensor::Of<float>({1, 5}, {1, 2, 3, 4, 5}))
                             .Initializer("first", HostTensor::Of<int64_t>({1}, {0}))
                             .Initializer("one", HostTensor::Of<int64_t>({1}, {1}))
                             .Node("Shape", {"x"}, {"shape"}, {{"start", int64_t{1}}})
                             .Node("Slice", {"c", "first", "shape", "one"}, {"part"})
                             .Node("Add", {"x", "part"}, {"y"})
                             .File(15)),
             R"(max_batch_size: 2 dynamic_batching { }
    input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true })");
  StartServing();
  ASSERT_TRUE(BecomesReady("table")) << ReasonOf("table");
  for (int length = 1; length <= 5; ++length) {
    const auto answer =
        Infer(Floats("table", {1, length}, std::vector<float>(static_cast<size_t>(length))));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(Values<float>(*answer).back(), static_cast<float>(length));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Infer(Floats("table", {1, 6}, {0, 0, 0, 0, 0, 0})).status()));
}

}  // namespace
}  // namespace telegrad
