// Models with instances on several devices, of this machine and of others: which device an
// instance group selects, that a request goes to the device that ends first, and that a lost
// machine loses no request.
#include <signal.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "tests/server/device_workers.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class ServingPlacesTest : public ServingTest {
 protected:
  static constexpr std::string_view kBatch = "max_batch_size: 8 dynamic_batching { }\n";

  std::vector<std::string> DevicesOf(const std::string& model) {
    std::vector<std::string> out;
    const inference::ModelConfig config = ConfigOf(model);
    for (const auto& group : config.instance_group()) {
      EXPECT_THAT(group.devices(), SizeIs(1));
      out.push_back(StrCat(group.devices(0), " ", group.count()));
    }
    return out;
  }
  // How many runs and copies the queue of a device has handed out.
  int WorksOf(const std::string& device) {
    const testing::Output page = testing::RunProgram(
        "/bin/bash", {"-c", StrCat("exec 3<>/dev/tcp/127.0.0.1/", std::atoi(metrics_.c_str()),
                                   "; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3")});
    const std::string name =
        StrCat("telegrad_queue_wait_seconds_count{device=\"", device, "\",queue=\"compute\"} ");
    const size_t at = page.text.find(name);
    return at == std::string::npos ? -1 : std::atoi(page.text.c_str() + at + name.size());
  }
  // Requests of many callers at a time, each checked; how many were not answered right.
  int WrongOfMany(const std::string& model, int callers, int requests) {
    std::vector<std::future<int>> running;
    for (int caller = 0; caller < callers; ++caller) {
      running.push_back(std::async(std::launch::async, [this, model, caller, requests] {
        int wrong = 0;
        for (int i = 0; i < requests; ++i) {
          const auto v = static_cast<float>(caller * requests + i);
          const auto answer = Infer(Floats(model, {1, 4}, {v, 0, 0, v}));
          wrong += answer.ok() && Values<float>(*answer) == std::vector<float>{v + 1, 1, 1, v + 1}
                       ? 0
                       : 1;
        }
        return wrong;
      }));
    }
    int wrong = 0;
    for (auto& caller : running) wrong += caller.get();
    return wrong;
  }
};

TEST_F(ServingPlacesTest, GroupsChooseDevices) {
  const auto with = [&](const std::string& name, std::string_view groups) {
    WriteModel(name, AddModel(1), StrCat(kBatch, "instance_group [ ", groups, " ]"));
  };
  WriteModel("default", AddModel(1));
  with("all", "{ kind: KIND_CPU count: 2 }");
  with("second", "{ devices: \"CPU:1\" }");
  with("twice", "{ devices: [ \"CPU:1\", \"CPU:0\" ] count: 2 }, { devices: \"CPU:1\" }");
  with("idle", "{ count: 1 }, { kind: KIND_CPU passive: true count: 3 }");
  with("gpu", "{ kind: KIND_GPU gpus: [ 0 ] }");
  with("nowhere", "{ devices: \"CPU:7\" }");
  with("gpus", "{ kind: KIND_CPU gpus: [ 1 ] }");
  StartServing({"--cpu-devices", "2", "--cuda-devices", "0"});
  for (const char* const model : {"default", "all", "second", "twice", "idle"}) {
    ASSERT_TRUE(BecomesReady(model)) << ReasonOf(model);
    EXPECT_EQ(WrongOfMany(model, 1, 2), 0);
  }
  EXPECT_THAT(DevicesOf("default"), ElementsAre("CPU:0 1"));
  EXPECT_THAT(DevicesOf("all"), ElementsAre("CPU:0 2", "CPU:1 2"));
  EXPECT_THAT(DevicesOf("second"), ElementsAre("CPU:1 1"));
  EXPECT_THAT(DevicesOf("twice"), ElementsAre("CPU:1 3", "CPU:0 2"));
  EXPECT_THAT(DevicesOf("idle"), ElementsAre("CPU:0 1"));
  EXPECT_EQ(ConfigOf("all").instance_group(1).kind(), inference::ModelInstanceGroup::KIND_CPU);
  Loaded("gpu");
  EXPECT_THAT(ReasonOf("gpu"), HasSubstr("this server has no GPU"));
  EXPECT_THAT(ReasonOf("nowhere"), HasSubstr("unknown device \"CPU:7\"; this server has CPU:0"));
  EXPECT_THAT(ReasonOf("gpus"), HasSubstr("none for KIND_CPU"));
}

// Both devices have work, and each of the model's weights.
TEST_F(ServingPlacesTest, WorkGoesToAllOfThem) {
  const std::vector<float> small(1 << 20, 1.0f / (1 << 16));  // for some work
  WriteModel("add",
             onnx::test::ModelWriter()
                 .Input("x", DType::kFloat32, {-1, 4})
                 .Output("y", DType::kFloat32, {-1, 4})
                 .Initializer("w", HostTensor::Of<float>({1 << 20}, small))
                 .Initializer("axes", HostTensor::Of<int64_t>({1}, {0}))
                 .Initializer("less", HostTensor::Of<float>({1}, {15}))
                 .Node("ReduceSum", {"w", "axes"}, {"sum"})
                 .Node("Sub", {"sum", "less"}, {"one"})
                 .Node("Add", {"x", "one"}, {"y"})
                 .File(13),
             "max_batch_size: 1 instance_group { kind: KIND_CPU }");
  StartServing({"--cpu-devices", "2"});
  ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  EXPECT_EQ(WrongOfMany("add", 16, 50), 0);
  EXPECT_GT(WorksOf("CPU:0"), 100);
  EXPECT_GT(WorksOf("CPU:1"), 100);
  const inference::ModelStatistics statistics = Statistics("add");
  EXPECT_EQ(statistics.inference_count(), 800);
  EXPECT_EQ(statistics.execution_count(), 800);
  ASSERT_THAT(statistics.memory_usage(), SizeIs(2));
  EXPECT_EQ(statistics.memory_usage(0).type(), "CPU:0");
  EXPECT_EQ(statistics.memory_usage(1).type(), "CPU:1");
  EXPECT_GT(statistics.memory_usage(1).byte_size(), 0);
}

// No new batch begins on a device that an administrator drains, also when the other one has all the
// work that it may have at a time: then requests wait.
TEST_F(ServingPlacesTest, ADrainedDeviceIsLeftAlone) {
  WriteModel("add", AddModel(1), "max_batch_size: 1 instance_group { kind: KIND_CPU }");
  const std::string admin = StrCat("unix:", ::testing::TempDir(), "places_admin_", getpid());
  StartServing({"--cpu-devices", "2", "--admin-listen", admin});
  ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  const testing::Output drained =
      testing::RunProgram(TELEGRAD, {"admin", "drain-device", "CPU:0", "--address", admin});
  ASSERT_EQ(drained.exit_code, 0) << drained.text;
  const int before = WorksOf("CPU:0");
  EXPECT_EQ(WrongOfMany("add", 16, 20), 0);
  EXPECT_EQ(WorksOf("CPU:0"), before);
}

TEST_F(ServingPlacesTest, ModelsThatChooseNoneAreOnAllThatTheFlagNames) {
  WriteModel("add", AddModel(1));
  StartServing({"--cpu-devices", "3", "--models-device", "CPU:2", "--models-device", "CPU:0"});
  ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  EXPECT_THAT(DevicesOf("add"), ElementsAre("CPU:2 1", "CPU:0 1"));
}

// What another machine was to run, this one does, and once it is there again it gets its share.
TEST_F(ServingPlacesTest, AMachineThatIsGoneLosesNoRequest) {
  const auto far = [&](const std::string& address) {
    auto process = std::make_unique<testing::Process>(
        TELEGRADD, std::vector<std::string>{"--listen", address, "--cpu-memory", "1073741824",
                                            "--cuda-devices", "0", "--log-level", "off"});
    process->Line("listening on ");
    process->ReadOn();
    return process;
  };
  const std::string address = StrCat("unix:", ::testing::TempDir(), "places_", getpid());
  auto other = far(address);
  WriteModel("add", AddModel(1),
             StrCat(kBatch, "instance_group { devices: [ \"b/CPU:0\", \"CPU:0\" ] }"));
  WriteModel("there", AddModel(1), StrCat(kBatch, "instance_group { devices: \"b/CPU:0\" }"));
  StartServing({"--remote", "b=" + address, "--cuda-devices", "0", "--remote-grace", "1000"});
  ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  ASSERT_TRUE(BecomesReady("there")) << ReasonOf("there");
  EXPECT_THAT(DevicesOf("add"), ElementsAre("b/CPU:0 1", "CPU:0 1"));
  EXPECT_EQ(WrongOfMany("there", 1, 3), 0);
  auto many = std::async(std::launch::async, [&] { return WrongOfMany("add", 8, 200); });
  other->Signal(SIGKILL);
  EXPECT_EQ(many.get(), 0);
  EXPECT_TRUE(absl::IsUnavailable(Infer(Floats("there", {1, 4}, {0, 0, 0, 0})).status()));
  EXPECT_EQ(WrongOfMany("add", 2, 20), 0);
  const auto becomes_ready = [&](bool ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (IsReady("there") != ready && std::chrono::steady_clock::now() < end) {
    }
    return IsReady("there") == ready;
  };
  EXPECT_TRUE(becomes_ready(false)) << "its only device is lost";
  EXPECT_TRUE(IsReady("add")) << "it has another";
  other = far(address);
  EXPECT_TRUE(becomes_ready(true));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!Infer(Floats("there", {1, 4}, {0, 0, 0, 0})).ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(WrongOfMany("there", 2, 5), 0);
}

// A model whose weights are on CUDA:0 of the fake.
class ServingOnALostGpu : public ServingPlacesTest {
 protected:
  void Serve(std::vector<std::string> flags) {
    for (size_t i = 0; i < weight_.size(); ++i) weight_[i] = static_cast<float>(i % 7);
    WriteModel("sum",
               onnx::test::ModelWriter()
                   .Input("x", DType::kFloat32, {-1, 4096})
                   .Output("y", DType::kFloat32, {-1, 4096})
                   .Initializer("w", HostTensor::Of<float>({4096}, weight_))
                   .Node("Add", {"x", "w"}, {"y"})
                   .File(13),
               std::string(kBatch));
    flags.insert(flags.end(), {"--cuda-library", TELEGRAD_FAKE_CUDA, "--hip-devices", "0",
                               "--models-device", "CUDA:0"});
    StartServing(flags);
    ASSERT_TRUE(BecomesReady("sum")) << ReasonOf("sum");
  }
  // Until it has answered `count` requests behind one that failed with the GPU.
  void ExpectAnswersBehindTheLoss(int count) {
    const std::vector<float> x(4096, 1);
    int answered = 0, failed = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (failed == 0 || answered < count) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << answered << " " << failed;
      const auto response = Infer(Floats("sum", {1, 4096}, x));
      if (!response.ok()) {
        ASSERT_TRUE(absl::IsUnavailable(response.status())) << response.status();
        // Until the daemon has looked; never for the weights that are gone.
        ASSERT_THAT(std::string(response.status().message()), Not(HasSubstr("memory of")));
        ++failed;
        continue;
      }
      ASSERT_EQ(response->raw_output_contents(0).size(), 4096 * sizeof(float));
      std::vector<float> y(4096);
      std::memcpy(y.data(), response->raw_output_contents(0).data(), 4096 * sizeof(float));
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 1 + weight_[i]) << i;
      answered += failed > 0 ? 1 : 0;
    }
  }

  std::vector<float> weight_ = std::vector<float>(4096);
};

// A kernel faults, and the GPU loses the weights with everything else. Once the daemon has opened
// it again, the model puts them there anew, and no request has to know.
TEST_F(ServingOnALostGpu, ServesAgainAfterAFault) {
  setenv("FAKE_CUDA_FAULT_LAUNCH", "3", 1);
  Serve({});
  unsetenv("FAKE_CUDA_FAULT_LAUNCH");
  ExpectAnswersBehindTheLoss(8);
}

// Models are one tenant, whose process is killed. What fails is what it was running.
TEST_F(ServingOnALostGpu, ServesAgainWithoutTheProcessThatHadItsWeights) {
  Serve({"--isolate", "tenant"});
  const std::vector<float> x(4096, 1);
  ASSERT_TRUE(Infer(Floats("sum", {1, 4096}, x)).ok());
  const std::set<pid_t> workers = DriversOf(daemon_->pid());
  ASSERT_EQ(workers.size(), 1u);
  const pid_t process = *workers.begin();
  std::atomic<bool> stop{false};
  std::atomic<int> unexpected{0};
  std::thread caller([&] {
    while (!stop.load()) {
      const auto response = Infer(Floats("sum", {1, 4096}, x));
      if (!response.ok() && !absl::IsUnavailable(response.status())) ++unexpected;
    }
  });
  kill(process, SIGSTOP);  // so that something is under way when it ends
  ExpectAnswersBehindTheLoss(8);
  stop = true;
  caller.join();
  EXPECT_EQ(unexpected.load(), 0);
  const std::set<pid_t> now = DriversOf(daemon_->pid());
  EXPECT_EQ(now.size(), 1u);
  EXPECT_EQ(now.count(process), 0u);
}

}  // namespace
}  // namespace telegrad
