// telegrad run --verify on models whose shapes depend on values, imported here and by the daemon.
#include <filesystem>

#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "engine/frontend/onnx/test_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/process.h"

namespace telegrad {
namespace {

using onnx::test::ModelWriter;
using ::testing::HasSubstr;
using testing::Output;
using testing::Process;
using testing::RunProgram;

class RunModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = StrCat(::testing::TempDir(), "run_model_", getpid());
    std::filesystem::create_directories(folder_);
    daemon_ = std::make_unique<Process>(
        TELEGRADD, std::vector<std::string>{"--listen", "127.0.0.1:0", "--cpu-memory", "1073741824",
                                            "--log-level", "off"});
    address_ = daemon_->Line("listening on ");
    ASSERT_FALSE(address_.empty());
    daemon_->ReadOn();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(WriteFile(StrCat(folder_, "/", name), bytes).ok());
  }
  // A data set of the folder.
  void WriteSet(int number, const std::vector<HostTensor>& inputs,
                const std::vector<HostTensor>& outputs) const {
    const std::string set = StrCat("test_data_set_", number);
    std::filesystem::create_directories(StrCat(folder_, "/", set));
    for (const auto& [prefix, tensors] : {std::pair("input", &inputs), {"output", &outputs}}) {
      for (size_t i = 0; i < tensors->size(); ++i) {
        Write(StrCat(set, "/", prefix, "_", i, ".pb"), *onnx::WriteTensorFile((*tensors)[i], ""));
      }
    }
  }
  Output Verify(const std::string& model, std::vector<std::string> more) const {
    std::vector<std::string> args = {
        "run", StrCat(folder_, "/", model), "--verify", folder_, "--address", address_};
    args.insert(args.end(), more.begin(), more.end());
    return RunProgram(TELEGRAD, args);
  }

  std::string folder_, address_;
  std::unique_ptr<Process> daemon_;
};

TEST_F(RunModelTest, OneImportForAllResultsOfARunsOwnShape) {
  Write("model.onnx", ModelWriter()
                          .Input("x", DType::kFloat32, {4})
                          .Node("NonZero", {"x"}, {"at"})
                          .Output("at", DType::kInt64, {1, -1})
                          .File(13));
  WriteSet(0, {HostTensor::Of<float>({4}, {0, 1, 0, 2})},
           {HostTensor::Of<int64_t>({1, 2}, {1, 3})});
  WriteSet(1, {HostTensor::Of<float>({4}, {0, 0, 0, 0})}, {HostTensor::Of<int64_t>({1, 0}, {})});
  WriteSet(2, {HostTensor::Of<float>({4}, {1, 1, 1, 1})},
           {HostTensor::Of<int64_t>({1, 4}, {0, 1, 2, 3})});
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--server-import"}}) {
    const Output ran = Verify("model.onnx", more);
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("3 data sets match, 1 imports"));
  }
}

// Sizes of a dimension that runs choose: one import for all of them.
TEST_F(RunModelTest, OneImportForSizesThatRunsChoose) {
  Write("model.onnx", ModelWriter()
                          .Input("x", DType::kFloat32, {-1, 2})
                          .Node("Neg", {"x"}, {"m"})
                          .Node("ReduceSum", {"m"}, {"y"}, {{"axes", std::vector<int64_t>{0}}})
                          .Output("m", DType::kFloat32, {-1, 2})
                          .Output("y", DType::kFloat32, {1, 2})
                          .File(12));
  for (int64_t n = 1; n <= 3; ++n) {
    std::vector<float> x, m;
    for (int64_t i = 0; i < 2 * n; ++i) {
      x.push_back(static_cast<float>(i));
      m.push_back(-x.back());
    }
    const auto all = static_cast<float>(n * (n - 1));
    WriteSet(static_cast<int>(n) - 1, {HostTensor::Of<float>({n, 2}, x)},
             {HostTensor::Of<float>({n, 2}, m),
              HostTensor::Of<float>({1, 2}, {-all, -all - static_cast<float>(n)})});
  }
  EXPECT_THAT(Verify("model.onnx", {}).text, HasSubstr("3 data sets match, 3 imports"));
  const Output ran = Verify("model.onnx", {"--dim", "N=1..8"});
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_THAT(ran.text, HasSubstr("3 data sets match, 1 imports"));
  EXPECT_EQ(Verify("model.onnx", {"--dim", "N=1..2"}).exit_code, 2);
  EXPECT_EQ(Verify("model.onnx", {"--dim", "N=2"}).exit_code, 2);
  EXPECT_EQ(Verify("model.onnx", {"--dim", "N=1..8", "--server-import"}).exit_code, 2);
}

// An input decides the shape of a Reshape, which has no form for all of them.
TEST_F(RunModelTest, AnImportForEachShapeThatAnInputGives) {
  std::vector<float> weight(6, 2);
  Write("model.onnx", ModelWriter()
                          .Input("x", DType::kFloat32, {6})
                          .Input("to", DType::kInt64, {2})
                          .Initializer("w", HostTensor::Of<float>({6}, weight))
                          .Node("Mul", {"x", "w"}, {"p"})
                          .Node("Reshape", {"p", "to"}, {"y"})
                          .Output("y", DType::kFloat32, {-1, -1})
                          .File(13));
  const HostTensor x = HostTensor::Of<float>({6}, {1, 2, 3, 4, 5, 6});
  const std::vector<float> y = {2, 4, 6, 8, 10, 12};
  WriteSet(0, {x, HostTensor::Of<int64_t>({2}, {2, 3})}, {HostTensor::Of<float>({2, 3}, y)});
  WriteSet(1, {x, HostTensor::Of<int64_t>({2}, {3, 2})}, {HostTensor::Of<float>({3, 2}, y)});
  WriteSet(2, {x, HostTensor::Of<int64_t>({2}, {3, 2})}, {HostTensor::Of<float>({3, 2}, y)});
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--server-import"}}) {
    const Output ran = Verify("model.onnx", more);
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("3 data sets match, 2 imports"));
  }
}

// Rounds that the values of an input decide, also where these are too large to go with the model
// before it is known that they are needed.
TEST_F(RunModelTest, RoundsThatALargeInputDecides) {
  const HostTensor yes{DType::kBool, {}, std::string(1, '\1')};
  ModelWriter body;
  body.Input("i", DType::kInt64, {}).Input("on", DType::kBool, {}).Input("v", DType::kFloat32, {});
  body.Node("Add", {"v", "sum"}, {"w"}).Node("Less", {"w", "limit"}, {"again"});
  body.Output("again").Output("w");
  constexpr int64_t kSize = 20'000;  // 80 kB
  Write("model.onnx", ModelWriter()
                          .Input("x", DType::kFloat32, {kSize})
                          .Initializer("limit", HostTensor::Of<float>({}, {100}))
                          .Initializer("zero", HostTensor::Of<float>({}, {0}))
                          .Initializer("true", yes)
                          .Node("ReduceSum", {"x"}, {"sum"}, {{"keepdims", int64_t{0}}})
                          .Node("Loop", {"", "true", "zero"}, {"last"},
                                {{"body", onnx::test::Graph{body.graph()}}})
                          .Output("last", DType::kFloat32, {})
                          .File(13));
  std::vector<float> values(kSize, 0);
  values[7] = 30;
  WriteSet(0, {HostTensor::Of<float>({kSize}, values)}, {HostTensor::Of<float>({}, {120})});
  values[8] = 10;
  WriteSet(1, {HostTensor::Of<float>({kSize}, values)}, {HostTensor::Of<float>({}, {120})});
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--server-import"}}) {
    const Output ran = Verify("model.onnx", more);
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("2 data sets match, 2 imports"));
  }
}

}  // namespace
}  // namespace telegrad
