// The OpenCL device behind the daemon, its kernels compiled in workers, its driver opened in the
// daemon or in a worker: it is listed, a graph runs where its buffers are, and the digits network
// is trained over gRPC.
#include <signal.h>

#include <filesystem>
#include <thread>

#include "engine/ir/content_hash.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/opencl/opencl_fixture.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/device_workers.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class DaemonOnOpenCl : public DaemonTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_OPENCL();
    StartOn(folder_.path());
  }

  // With a folder for what it compiles, and time enough to do it on a busy machine.
  void StartOn(const std::filesystem::path& kernels) {
    std::filesystem::create_directory(kernels / "kernels");
    std::filesystem::permissions(kernels / "kernels", std::filesystem::perms::owner_all);
    Start({"--opencl-devices", "1", "--opencl-memory", "100000000", "--opencl-library",
           OpenClLibrary(), "--cuda-devices", "0", "--compile-workers", "1", "--kernel-cache",
           (kernels / "kernels").string(), "--isolate", GetParam(), "--job-time", "600000"});
  }

  // Runs DoubleGraph on OPENCL:0.
  void Double() {
    const absl::Status status = TryDouble();
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::Status TryDouble() {
    const auto session = Session();
    std::vector<float> x(1000), z(1000, 1.0f);
    for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i);
    session->Alloc(1, 4000, "OPENCL:0");
    session->Alloc(2, 4000, "OPENCL:0");
    session->WriteCopy(1, 0, Bytes(x));
    const FrozenGraph graph = DoubleGraph(1000);
    const auto put = session->Put(graph.root());
    const uint64_t handles[] = {2, 1};
    const auto run = session->Run(ContentHash(graph.root()), handles);
    const auto doubled = session->Read(2, 0, Writable(z));
    TG_RETURN_IF_ERROR(put.Get().status());
    TG_RETURN_IF_ERROR(run.Get().status());
    TG_RETURN_IF_ERROR(doubled.Get().status());
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(z[i], 2.0f * x[i]);
    return absl::OkStatus();
  }

  const TemporaryDirectory folder_;
};

TEST_P(DaemonOnOpenCl, RunsGraphsAndKeepsTheirKernels) {
  std::vector<std::string> notes;
  const auto devices = connection_->ListDevices(&notes);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1].name, "OPENCL:0");
  EXPECT_THAT((*devices)[1].target, HasSubstr("opencl-c"));
  EXPECT_EQ((*devices)[1].memory_limit, 100'000'000);
  EXPECT_TRUE((*devices)[1].healthy);
  Double();
  EXPECT_EQ(Stat("telegrad_kernels_compiled_total"), 1);
  StartOn(folder_.path());
  Double();
  EXPECT_EQ(Stat("telegrad_kernels_compiled_total"), 0);  // it was in the folder
}

TEST_P(DaemonOnOpenCl, TrainsTheDigits) {
  testing::Process train(
      TELEGRAD, {"train", "digits", "--address", address_, "--device", "OPENCL:0", "--data",
                 "tests/data/digits/digits.csv.gz", "--plot", "never"});
  const testing::Output output = train.Wait();
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const size_t last = output.text.rfind("held out ");
  ASSERT_NE(last, std::string::npos) << output.text;
  EXPECT_GE(std::stod(output.text.substr(last + 9)), 97.0) << output.text;
}

// The error names it, and a new one takes the next run.
TEST_P(DaemonOnOpenCl, RunsGoOnAfterItsWorkerWasKilled) {
  if (GetParam() == "none") GTEST_SKIP() << "the driver is in the daemon";
  for (int round = 0; round < 3; ++round) {
    Double();
    const auto drivers = DriversOf(daemon_->pid());
    ASSERT_EQ(drivers.size(), 1u);
    const std::string whose = GetParam() == "tenant" ? "worker of tenant local" : "worker";
    kill(*drivers.begin(), SIGKILL);
    while (!HasEndedOrStopped(*drivers.begin())) std::this_thread::yield();
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status = TryDouble();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(StrCat("OPENCL:0's ", whose, " (process ", *drivers.begin(),
                                 ") was ended by signal 9 (Killed)")));
    while (!status.ok()) status = TryDouble();
    const auto took = std::chrono::steady_clock::now() - begin;
    RecordProperty(StrCat("round_", round, "_ms"), StrCat(took / std::chrono::milliseconds(1)));
    EXPECT_LT(took, std::chrono::seconds(20)) << "a busy machine takes less than one";
  }
}

INSTANTIATE_TEST_SUITE_P(Isolation, DaemonOnOpenCl, ::testing::Values("none", "device", "tenant"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace telegrad
