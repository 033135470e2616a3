// Models that are reloaded while requests arrive, and their readiness meanwhile.
#include <future>
#include <thread>

#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ServingTest, ABetterVersionTakesThePlaceAndABrokenOneDoesNot) {
  WriteModel("add", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  const auto answer = [&] {
    const auto response = Infer(Floats("add", {1, 4}, {0, 0, 0, 0}));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? std::pair(response->model_version(), Values<float>(*response)[0])
                         : std::pair(std::string(), 0.0f);
  };
  EXPECT_EQ(answer(), std::pair(std::string("1"), 1.0f));
  WriteModel("add", AddModel(2));  // in place
  ASSERT_TRUE(Load("add").ok());
  EXPECT_EQ(answer(), std::pair(std::string("1"), 2.0f));
  WriteModel("add", AddModel(3), "", 2);  // the latest is served
  ASSERT_TRUE(Load("add").ok());
  EXPECT_EQ(answer(), std::pair(std::string("2"), 3.0f));
  EXPECT_FALSE(IsReady("add", "1"));
  WriteModel("add", "this is no model", "", 3);
  const absl::Status broken = Load("add");
  EXPECT_TRUE(absl::IsInvalidArgument(broken)) << broken;
  EXPECT_EQ(answer(), std::pair(std::string("2"), 3.0f));
  bool told = false;
  for (const auto& row : Loaded("add")) {
    if (row.version() != "3") continue;
    told = row.state() == "UNAVAILABLE" && row.reason().find("ONNX") != std::string::npos;
  }
  EXPECT_TRUE(told);
  WriteModel("add", "nor is this", "", 2);  // the file of the version that serves
  EXPECT_FALSE(Load("add").ok());
  EXPECT_EQ(answer(), std::pair(std::string("2"), 3.0f));
  WriteFile("add/config.pbtxt", "max_batch_size: four");
  EXPECT_FALSE(Load("add").ok());
  EXPECT_EQ(answer(), std::pair(std::string("2"), 3.0f));
  for (const auto& row : Loaded("add")) {
    if (row.version() != "2") continue;
    EXPECT_EQ(row.state(), "READY");
    EXPECT_THAT(row.reason(), ::testing::HasSubstr("config.pbtxt: 1:17"));
  }
}

// Requests come all the time while versions take each other's place.
TEST_F(ServingTest, NoRequestIsLostInReloads) {
  constexpr int kReloads = 20;
  WriteModel("add", AddModel(1), "max_batch_size: 4 dynamic_batching {}");
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  std::atomic<bool> stop = false;
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([&] {
      while (!stop) {
        const auto response = Infer(Floats("add", {1, 4}, {0, 0, 0, 0}));
        ASSERT_TRUE(response.ok()) << response.status();
        const float value = Values<float>(*response)[0];
        EXPECT_TRUE(value >= 1 && value <= kReloads + 1) << value;
        ++answered;
      }
    });
  }
  for (int i = 1; i <= kReloads; ++i) {
    WriteModel("add", AddModel(static_cast<float>(i + 1)));
    ASSERT_TRUE(Load("add").ok());
    const auto response = Infer(Floats("add", {1, 4}, {0, 0, 0, 0}));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(Values<float>(*response)[0], static_cast<float>(i + 1));  // not the one before
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_GT(answered, 0);
}

TEST_F(ServingTest, AFollowedFolderIsServedAsItChanges) {
  StartServing({"--models-control", "poll", "--models-poll", "1"});
  WriteModel("late", AddModel(1));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  // A look between the folder and its file finds a model that does not load; the next one loads it.
  while (!IsReady("late")) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  std::filesystem::remove_all(models_.path() / "late");
  while (IsReady("late") && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_FALSE(IsReady("late"));
}

class ServingReadyTest : public ServingTest {
 protected:
  bool ServerIsReady() {
    grpc::ClientContext context;
    inference::ServerReadyResponse response;
    return stub_->ServerReady(&context, {}, &response).ok() && response.ready();
  }
  bool Becomes(const std::function<bool()>& what) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!what()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }
};

// The moment in which the server is ready all models are, and each one that is answers.
TEST_F(ServingReadyTest, AServerIsReadyWhenAllItsModelsAre) {
  constexpr int kModels = 12;
  for (int i = 0; i < kModels; ++i) {
    WriteModel(StrCat("m", i), AddModel(static_cast<float>(i), {-1, 4 + i}));
  }
  StartServing();
  std::vector<bool> seen(kModels);
  ASSERT_TRUE(Becomes([&] {
    const bool all = ServerIsReady();
    for (int i = 0; i < kModels; ++i) {
      const std::string name = StrCat("m", i);
      const bool ready = IsReady(name);
      EXPECT_TRUE(ready || (!all && !seen[static_cast<size_t>(i)])) << name;
      if (ready && !seen[static_cast<size_t>(i)]) {
        const Shape shape = {1, 4 + i};
        const auto answer =
            Infer(Floats(name, shape, std::vector<float>(static_cast<size_t>(shape[1]))));
        EXPECT_TRUE(answer.ok()) << answer.status();
      }
      seen[static_cast<size_t>(i)] = ready;
    }
    return all;
  }));
}

TEST_F(ServingReadyTest, AModelThatFailsIsNotReadyUntilItIsMended) {
  WriteModel("add", AddModel(1));
  WriteModel("wrong", "no model");
  StartServing();
  EXPECT_FALSE(BecomesReady("wrong"));
  ASSERT_TRUE(BecomesReady("add"));
  EXPECT_FALSE(ServerIsReady());
  EXPECT_FALSE(IsReady("nothing"));
  WriteModel("wrong", AddModel(2));
  ASSERT_TRUE(Load("wrong").ok());
  EXPECT_TRUE(ServerIsReady() && IsReady("wrong"));
  // A load that fails takes nothing away, and says so.
  WriteModel("wrong", "no model again");
  EXPECT_FALSE(Load("wrong").ok());
  EXPECT_TRUE(ServerIsReady() && IsReady("wrong"));
  EXPECT_THAT(ReasonOf("wrong"), HasSubstr("a newer file does not load"));
  const auto answer = Infer(Floats("wrong", {1, 4}, {0, 0, 0, 0}));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(Values<float>(*answer), ElementsAre(2, 2, 2, 2));
  ASSERT_TRUE(Unload("wrong").ok());
  EXPECT_FALSE(IsReady("wrong"));
  EXPECT_TRUE(ServerIsReady());  // it is not to be served any more
}

TEST_F(ServingReadyTest, ALoadInPlaceIsNotSeen) {
  WriteModel("add", AddModel(0));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  std::atomic<bool> over{false};
  auto watch = std::async(std::launch::async, [&] {
    int times = 0, wrong = 0;
    for (; !over || times == 0; ++times) wrong += ServerIsReady() && IsReady("add") ? 0 : 1;
    return wrong;
  });
  for (int i = 1; i <= 10; ++i) {
    WriteModel("add", AddModel(static_cast<float>(i)));
    EXPECT_TRUE(Load("add").ok());
  }
  over = true;
  EXPECT_EQ(watch.get(), 0);
}

// A request holds the daemon up while it drains: from then on it says that it is not ready.
TEST_F(ServingReadyTest, ADrainingServerIsNotReady) {
  WriteModel("add", AddModel(1), R"(
    max_batch_size: 8
    dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 60000000 })");
  StartServing({"--drain-seconds", "60", "--http", "127.0.0.1:0"});
  // gRPC takes no new calls while it drains; HTTP does.
  const auto answer = [this](std::string_view path) {
    const std::string port = http_.substr(http_.rfind(':') + 1);
    return testing::RunProgram(
               "/bin/bash",
               {"-c",
                StrCat("exec 3<>/dev/tcp/127.0.0.1/", port, "; printf 'GET ", path,
                       " HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3;"
                       " head -n 1 <&3")})
        .text.substr(0, 12);
  };
  ASSERT_TRUE(BecomesReady("add"));
  ASSERT_TRUE(ServerIsReady());
  inference::ModelStreamInferResponse response;
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(Floats("add", {4, 4}, std::vector<float>(16))));
  EXPECT_EQ(answer("/v2/models/add/ready"), "HTTP/1.1 200");
  daemon_->Signal(SIGTERM);
  EXPECT_TRUE(Becomes([&] { return answer("/v2/health/ready") == "HTTP/1.1 503"; }));
  EXPECT_EQ(answer("/v2/models/add/ready"), "HTTP/1.1 503");
  EXPECT_EQ(answer("/v2/health/live"), "HTTP/1.1 200");
  EXPECT_FALSE(ServerIsReady() || IsReady("add"));
  context.TryCancel();
}

}  // namespace
}  // namespace telegrad
