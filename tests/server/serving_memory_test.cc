// The memory of models: released when they are unloaded, computed before they are loaded, and freed
// by unloading other models.
#include <future>

#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(ServingTest, UnloadedModelsAreGoneAndTheirMemoryToo) {
  const auto memory = [&] { return Stat("telegrad_device_memory_used_bytes"); };
  StartServing({"--models-control", "explicit"});
  const double before = memory();
  WriteModel("big", onnx::test::ModelWriter()
                        .Input("x", DType::kFloat32, {1})
                        .Initializer(
                            "w", HostTensor{DType::kFloat32, {1 << 20}, std::string(4 << 20, '\1')})
                        .Node("Add", {"x", "w"}, {"y"})
                        .Output("y")
                        .File(13));
  EXPECT_FALSE(IsReady("big"));
  ASSERT_TRUE(Load("big").ok());
  EXPECT_GE(memory() - before, 4 << 20);
  const auto response = Infer(Floats("big", {1}, {1}));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).shape(), ElementsAre(1 << 20));
  ASSERT_TRUE(Unload("big").ok());
  const absl::Status gone = Infer(Floats("big", {1}, {1})).status();
  EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("unloaded"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (memory() > before && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_EQ(memory(), before);
}

TEST_F(ServingTest, AModelThatDoesNotFitIsRefusedBeforeItIsLoaded) {
  const auto heavy = [](char fill) {
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, {1})
        .Initializer("w", HostTensor{DType::kFloat32, {1 << 20}, std::string(4 << 20, fill)})
        .Node("Add", {"x", "w"}, {"y"})
        .Output("y")
        .File(13);
  };
  WriteModel("first", heavy(1));
  WriteModel("same", heavy(1));
  WriteModel("other", heavy(2));
  StartServing({"--models-control", "explicit", "--models-memory", "6000000"});
  ASSERT_TRUE(Load("first").ok());
  EXPECT_TRUE(Load("same").ok());  // its weights are there
  const absl::Status refused = Load("other");
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("4194304 of weights"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("first version 1 4194304"));
  ASSERT_TRUE(Unload("first").ok());
  ASSERT_TRUE(Unload("same").ok());
  EXPECT_TRUE(Load("other").ok());
}

class ServingEvictionTest : public ServingTest {
 protected:
  // 4 MiB of weights, each of them `value`.
  static std::string Heavy(float value) {
    std::string weights(4 << 20, '\0');
    for (size_t i = 0; i < weights.size(); i += 4) std::memcpy(weights.data() + i, &value, 4);
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, {1})
        .Initializer("w", HostTensor{DType::kFloat32, {1 << 20}, weights})
        .Initializer("axes", HostTensor::Of<int64_t>({1}, {0}))
        .Node("ReduceMax", {"w", "axes"}, {"most"})
        .Node("Add", {"x", "most"}, {"y"})
        .Output("y")
        .File(18);
  }
  absl::Status Ask(const std::string& model, float expected) {
    const auto answer = Infer(Floats(model, {1}, {0}));
    TG_RETURN_IF_ERROR(answer.status());
    EXPECT_THAT(Values<float>(*answer), ElementsAre(expected)) << model;
    return absl::OkStatus();
  }
  std::string StateOf(const std::string& model) {
    const auto rows = Loaded(model);
    return rows.empty() ? "" : rows.front().state() + " " + rows.front().reason();
  }
};

TEST_F(ServingEvictionTest, TheLeastRecentlyUsedModelMakesRoomAndComesBack) {
  for (const auto& [name, value] : {std::pair("a", 1), {"b", 2}, {"c", 3}}) {
    WriteModel(name, Heavy(static_cast<float>(value)));
  }
  StartServing({"--models-control", "explicit", "--models-memory", "10000000", "--models-evict"});
  ASSERT_TRUE(Load("a").ok());
  ASSERT_TRUE(Load("b").ok());
  ASSERT_TRUE(Ask("b", 2).ok());
  // Times are of milliseconds.
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < soon) ASSERT_TRUE(Ask("a", 1).ok());
  const absl::Status loaded = Load("c");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_THAT(StateOf("b"), HasSubstr("UNAVAILABLE unloaded to make room for another"));
  EXPECT_TRUE(IsReady("a") && IsReady("c"));
  EXPECT_FALSE(IsReady("b"));
  grpc::ClientContext context;
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(stub_->ServerReady(&context, {}, &ready).ok() && ready.ready());
  // Whoever asks for it waits until it is there again, and each of many gets the right answer.
  std::vector<std::future<absl::Status>> answers;
  for (int i = 0; i < 12; ++i) {
    answers.push_back(std::async(std::launch::async, [this, i] {
      const char* const names[] = {"a", "b", "c"};
      return Ask(names[i % 3], static_cast<float>(i % 3 + 1));
    }));
  }
  for (auto& answer : answers) {
    const absl::Status status = answer.get();
    // Three at a time do not fit: some may find no other model that is idle.
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status) || absl::IsUnavailable(status))
        << status;
  }
  for (int i = 0; i < 45; ++i) {  // what an answer held is given back in time
    const char* const names[] = {"b", "c", "a"};
    const absl::Status status = Ask(names[i % 3], static_cast<float>((i + 1) % 3 + 1));
    EXPECT_TRUE(status.ok()) << status;
  }
  ASSERT_TRUE(Unload("b").ok());
  EXPECT_TRUE(absl::IsUnavailable(Ask("b", 2)));  // as its administrator said
}

}  // namespace
}  // namespace telegrad
