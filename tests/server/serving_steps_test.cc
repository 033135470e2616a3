// Ensembles whose steps cannot be joined to one graph: strings between steps, shapes that a step's
// run decides, errors of single steps, many requests at a time.
#include <future>

#include "server/serving/bytes_tensor.h"
#include "tests/server/ensemble_config.h"
#include "tests/server/served_models.h"
#include "tests/server/serving_fixture.h"
#include "tests/server/word_models.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ServingStepsTest : public ServingTest {
 protected:
  void SetUp() override {
    WriteModel("numbers", NumbersOfWords());
    WriteModel("words", WordsOfNumbers());
    WriteModel("next", onnx::test::ModelWriter()
                           .Input("x", DType::kInt64, {-1})
                           .Output("y", DType::kInt64, {-1})
                           .Initializer("one", HostTensor::Of<int64_t>({1}, {1}))
                           .Node("Add", {"x", "one"}, {"y"})
                           .File(13));
    WriteModel("some", SomeModel(), "max_batch_size: 0");
    WriteModel("add", AddModel(10, {-1}));
    WriteModel("pair", AddModel(100, {2}));
  }
  void WriteEnsemble(const std::string& name, const std::string& type, const std::string& steps,
                     const std::string& more = "") {
    std::filesystem::create_directories(models_.path() / name / "1");
    WriteFile(std::filesystem::path(name) / "config.pbtxt",
              EnsembleConfig(type, "-1", steps, more));
  }
  void StartWith(const std::vector<std::string>& models,
                 const std::vector<std::string>& flags = {}) {
    StartServing(flags);
    for (const std::string& model : models) {
      ASSERT_TRUE(BecomesReady(model)) << model << ": " << Loaded(model)[0].reason();
    }
  }
  absl::StatusOr<std::vector<float>> Numbers(const std::string& model,
                                             const std::vector<float>& values) {
    auto request = Floats(model, {static_cast<int64_t>(values.size())}, values);
    request.mutable_inputs(0)->set_name("in");
    TG_ASSIGN_OR_RETURN(const auto answer, Infer(request));
    EXPECT_EQ(answer.outputs(0).name(), "out");
    EXPECT_EQ(answer.outputs(0).shape(0), answer.raw_output_contents(0).size() / sizeof(float));
    return Values<float>(answer);
  }
  absl::StatusOr<std::vector<std::string>> Words(const std::string& model,
                                                 const std::vector<std::string>& words) {
    std::string bytes;
    for (const std::string& word : words) AppendElement(word, &bytes);
    auto request = Request<char>(model, "BYTES", {static_cast<int64_t>(words.size())},
                                 {bytes.begin(), bytes.end()});
    request.mutable_inputs(0)->set_name("in");
    TG_ASSIGN_OR_RETURN(const auto answer, Infer(request));
    EXPECT_EQ(answer.outputs(0).datatype(), "BYTES");
    std::string_view rest = answer.raw_output_contents(0), element;
    std::vector<std::string> out;
    while (TakeElement(&rest, &element)) out.emplace_back(element);
    return out;
  }
};

TEST_F(ServingStepsTest, StringsGoThroughAGraph) {
  WriteEnsemble("after", "TYPE_STRING",
                Step("words", "u", "out") + Step("next", "t", "u") + Step("numbers", "in", "t"));
  WriteEnsemble("twice", "TYPE_STRING",
                StrCat("step { model_name: 'after' ", Pair("input_map", "in", "in"),
                       Pair("output_map", "out", "t"), "} step { model_name: 'after' ",
                       Pair("input_map", "in", "t"), Pair("output_map", "out", "out"), "} "));
  StartWith({"after", "twice", "next"});
  for (int i = 0; i < 2; ++i) {
    const auto words = Words("after", {"one", "two", "ten"});
    ASSERT_TRUE(words.ok()) << words.status();
    EXPECT_THAT(*words, ElementsAre("two", "", "many"));
  }
  const auto words = Words("twice", {"one", "two"});
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_THAT(*words, ElementsAre("", "many"));
  EXPECT_EQ(Statistics("after").execution_count(), 2u);
  EXPECT_EQ(Statistics("after").inference_stats().success().count(), 2u);
  EXPECT_EQ(Statistics("next").execution_count(), 0u) << "its own requests alone";
}

TEST_F(ServingStepsTest, ShapesThatAStepDecides) {
  WriteModel("sum", onnx::test::ModelWriter()
                        .Input("a", DType::kFloat32, {-1})
                        .Input("b", DType::kFloat32, {-1})
                        .Output("y", DType::kFloat32, {-1})
                        .Node("Add", {"a", "b"}, {"y"})
                        .File(13));
  // Two branches from what is left, which meet again.
  WriteEnsemble("branches", "TYPE_FP32",
                StrCat(Step("some", "in", "t"), Step("add", "t", "u"), Step("add", "u", "v"),
                       "step { model_name: 'sum' ", Pair("input_map", "a", "u"),
                       Pair("input_map", "b", "v"), Pair("output_map", "y", "out"), "} "));
  StartWith({"branches"});
  const auto values = Numbers("branches", {0, 1, 0, 2, 3});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(32, 34, 36));
  const auto fewer = Numbers("branches", {0, 0, 5});
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_THAT(*fewer, ElementsAre(40));

  std::vector<std::future<int>> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.push_back(std::async(std::launch::async, [this, caller] {
      int wrong = 0;
      for (int i = 0; i < 20; ++i) {
        std::vector<float> in(6, 0), want;
        for (int k = 0; k <= (caller + i) % 6; ++k) {
          in[static_cast<size_t>(k)] = static_cast<float>(caller + 1);
          want.push_back(static_cast<float>(2 * (caller + 1) + 30));
        }
        const auto out = Numbers("branches", in);
        wrong += out.ok() && *out == want ? 0 : 1;
      }
      return wrong;
    }));
  }
  for (auto& caller : callers) EXPECT_EQ(caller.get(), 0);
}

TEST_F(ServingStepsTest, AStepThatFailsIsNamed) {
  WriteEnsemble("pairs", "TYPE_FP32", Step("some", "in", "t") + Step("pair", "t", "out"));
  StartWith({"pairs"});
  const auto three = Numbers("pairs", {1, 2, 3});
  EXPECT_TRUE(absl::IsInvalidArgument(three.status())) << three.status();
  EXPECT_THAT(ToStd(three.status().message()),
              HasSubstr("step 2 (pair): model 'pair', input 'x': has shape [3], expected [2]"));
  const auto two = Numbers("pairs", {0, 1, 2, 0});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_THAT(*two, ElementsAre(101, 102));
  EXPECT_EQ(Statistics("pairs").inference_stats().fail().count(), 1u);
  EXPECT_EQ(Statistics("pairs").inference_stats().success().count(), 1u);
}

// The first step takes longer than the request may wait, but its model does not ask; the last
// one's does, and what the request has waited elsewhere counts.
TEST_F(ServingStepsTest, ATimeoutCountsFromTheArrivalAtTheEnsemble) {
  WriteModel("slow", AddModel(10, {-1}), R"(
    max_batch_size: 4
    dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 400000 })");
  WriteModel("strict", AddModel(100, {-1}), R"(
    max_batch_size: 4
    dynamic_batching { default_queue_policy { allow_timeout_override: true } })");
  WriteEnsemble("chain", "TYPE_FP32",
                Step("slow", "in", "t") + Step("some", "t", "u") + Step("strict", "u", "out"));
  StartWith({"chain"});
  const auto infer = [this](int64_t timeout_us) {
    auto request = Floats("chain", {2}, {1, 2});
    request.mutable_inputs(0)->set_name("in");
    (*request.mutable_parameters())["timeout"].set_int64_param(timeout_us);
    return Infer(request);
  };
  const auto patient = infer(3'600'000'000);
  ASSERT_TRUE(patient.ok()) << patient.status();
  EXPECT_THAT(Values<float>(*patient), ElementsAre(111, 112));
  const absl::Status late = infer(300'000).status();
  EXPECT_TRUE(absl::IsUnavailable(late)) << late;
  EXPECT_THAT(ToStd(late.message()),
              HasSubstr("step 3 (strict): model 'strict': Request timeout expired in the queue"));
}

TEST_F(ServingStepsTest, TypesThatDoNotFitAreRefusedWhenLoaded) {
  WriteEnsemble("wrong", "TYPE_STRING", Step("numbers", "in", "t") + Step("add", "t", "out"));
  StartServing();
  const auto rows = Loaded("wrong");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NE(rows[0].state(), "READY");
  EXPECT_THAT(rows[0].reason(), HasSubstr("step 2 (add): input 'x' is FP32 of shape [-1], and "
                                          "what comes to it is INT64 of shape [-1]"));
}

// The weights that steps have in common with other models are on the device once, and all of them
// leave it with the ensemble.
TEST_F(ServingStepsTest, WeightsComeAndGo) {
  const HostTensor weight{DType::kFloat32, {1 << 20}, std::string(4 << 20, '\0')};
  WriteModel("heavy", onnx::test::ModelWriter()
                          .Input("x", DType::kFloat32, {-1})
                          .Initializer("w", weight)
                          .Initializer("axes", HostTensor::Of<int64_t>({1}, {0}))
                          .Node("ReduceSum", {"w", "axes"}, {"sum"})
                          .Node("Add", {"x", "sum"}, {"y"})
                          .Output("y", DType::kFloat32, {-1})
                          .File(13));
  WriteEnsemble("both", "TYPE_FP32",
                Step("some", "in", "t") + Step("heavy", "t", "u") + Step("heavy", "u", "out"));
  StartServing({"--models-control", "explicit", "--models-memory", "7000000"});
  const double before = Stat("telegrad_device_memory_used_bytes");
  const absl::Status loaded = Load("both");
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto values = Numbers("both", {0, 7});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(7));
  const auto statistics = Statistics("both");
  ASSERT_EQ(statistics.memory_usage_size(), 1);
  EXPECT_GE(statistics.memory_usage(0).byte_size(), 4u << 20);
  ASSERT_TRUE(Unload("both").ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  // Compiled graphs stay in the cache, without temporaries.
  while (Stat("telegrad_device_memory_used_bytes") > before) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline)
        << Stat("telegrad_device_memory_used_bytes") - before << " bytes are left";
  }
}

}  // namespace
}  // namespace telegrad
