// Models whose outputs have shapes that each run decides: an answer has the part of an output
// that the run has filled, and a model whose outputs cannot be divided among the requests of a
// batch is refused when it is loaded.
#include <thread>

#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class ServingRunShapesTest : public ServingTest {
 protected:
  // What is not 0 in rows of three, and where.
  static std::string Model() {
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, {-1, 3})
        .Output("y", DType::kInt64, {2, -1})
        .Output("z", DType::kFloat32, {-1})
        .Initializer("zero", HostTensor::Of<float>({1}, {0}))
        .Initializer("flat", HostTensor::Of<int64_t>({1}, {-1}))
        .Node("NonZero", {"x"}, {"y"})
        .Node("Equal", {"x", "zero"}, {"none"})
        .Node("Not", {"none"}, {"some"})
        .Node("Reshape", {"some", "flat"}, {"mask"})
        .Node("Compress", {"x", "mask"}, {"z"})
        .File(13);
  }
  void Start() {
    StartServing();
    ASSERT_FALSE(Loaded("find").empty());
    ASSERT_TRUE(IsReady("find")) << Loaded("find")[0].reason();
  }
  void Check(const std::vector<float>& x) {
    std::vector<int64_t> rows, columns;
    std::vector<float> values;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 0) continue;
      rows.push_back(static_cast<int64_t>(i / 3));
      columns.push_back(static_cast<int64_t>(i % 3));
      values.push_back(x[i]);
    }
    const auto response = Infer(Floats("find", {static_cast<int64_t>(x.size() / 3), 3}, x));
    ASSERT_TRUE(response.ok()) << response.status();
    ASSERT_EQ(response->outputs_size(), 2);
    const auto n = static_cast<int64_t>(values.size());
    EXPECT_THAT(response->outputs(0).shape(), ElementsAre(2, n));
    EXPECT_THAT(response->outputs(1).shape(), ElementsAre(n));
    std::vector<int64_t> want = rows;
    want.insert(want.end(), columns.begin(), columns.end());
    EXPECT_THAT(Values<int64_t>(*response), ElementsAreArray(want));
    EXPECT_THAT(Values<float>(*response, 1), ElementsAreArray(values));
  }
};

TEST_F(ServingRunShapesTest, AnAnswerHasWhatTheRunHasUsed) {
  WriteModel("find", Model());
  Start();
  Check({0, 1, 0, 2, 0, 3});
  Check({0, 0, 0, 0, 0, 0});
  Check({1, 2, 3, 4, 5, 6});
  Check({7, 0, 0, 0, 0, 0});
  Check({0, 0, 8});
  Check({0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9});
  // Of one output alone, and one whose shape is not known in advance.
  auto request = Floats("find", {1, 3}, {0, 4, 5});
  request.add_outputs()->set_name("z");
  const auto response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_THAT(Values<float>(*response), ElementsAre(4, 5));
  grpc::ClientContext context;
  inference::ModelMetadataRequest about;
  inference::ModelMetadataResponse metadata;
  about.set_name("find");
  ASSERT_TRUE(stub_->ModelMetadata(&context, about, &metadata).ok());
  EXPECT_EQ(metadata.outputs(1).shape(0), -1);
}

// Runs at the same time have shapes of their own.
TEST_F(ServingRunShapesTest, RequestsAtTheSameTime) {
  WriteModel("find", Model());
  Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 16; ++i) {
        std::vector<float> x(12);
        for (size_t k = 0; k < x.size(); ++k) {
          x[k] = static_cast<float>(((i * 7 + t * 3) >> (k % 5)) & 1) * static_cast<float>(t + 1);
        }
        Check(x);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ServingRunShapesTest, BatchesOfThemAreRefused) {
  WriteModel("batched",
             onnx::test::ModelWriter()
                 .Input("x", DType::kFloat32, {-1, 3})
                 .Output("y", DType::kFloat32, {-1, 3})
                 .Initializer("zero", HostTensor::Of<float>({1}, {0}))
                 .Initializer("axis", HostTensor::Of<int64_t>({1}, {1}))
                 .Node("Greater", {"x", "zero"}, {"positive"})
                 .Node("Cast", {"positive"}, {"number"}, {{"to", int64_t{6}}})
                 .Node("ReduceMax", {"number", "axis"}, {"any"}, {{"keepdims", int64_t{0}}})
                 .Node("Cast", {"any"}, {"rows"}, {{"to", int64_t{9}}})
                 .Node("Compress", {"x", "rows"}, {"y"}, {{"axis", int64_t{0}}})
                 .File(18),
             "max_batch_size: 4");
  StartServing();
  const auto rows = Loaded("batched");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NE(rows[0].state(), "READY");
  EXPECT_THAT(rows[0].reason(), HasSubstr("output 'y' depends on values"));
  EXPECT_THAT(rows[0].reason(), HasSubstr("max_batch_size to 0"));
}

}  // namespace
}  // namespace telegrad
