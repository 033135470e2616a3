// The OpenCL device behind the daemon, its kernels compiled in workers: it is listed, a graph runs
// where its buffers are, and the digits network is trained over gRPC.
#include <filesystem>

#include "engine/ir/content_hash.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/opencl/opencl_fixture.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class DaemonOnOpenCl : public DaemonTest {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_OPENCL();
    StartOn(folder_.path());
  }

  // With a folder for what it compiles.
  void StartOn(const std::filesystem::path& kernels) {
    std::filesystem::create_directory(kernels / "kernels");
    std::filesystem::permissions(kernels / "kernels", std::filesystem::perms::owner_all);
    Start({"--opencl-devices", "1", "--opencl-memory", "100000000", "--opencl-library",
           OpenClLibrary(), "--cuda-devices", "0", "--compile-workers", "1", "--kernel-cache",
           (kernels / "kernels").string()});
  }

  // Runs DoubleGraph on OPENCL:0.
  void Double() {
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
    ASSERT_TRUE(put.Get().ok()) << put.Get().status();
    ASSERT_TRUE(run.Get().ok()) << run.Get().status();
    ASSERT_TRUE(doubled.Get().ok()) << doubled.Get().status();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(z[i], 2.0f * x[i]);
  }

  const TemporaryDirectory folder_;
};

TEST_F(DaemonOnOpenCl, RunsGraphsAndKeepsTheirKernels) {
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

TEST_F(DaemonOnOpenCl, TrainsTheDigits) {
  testing::Process train(
      TELEGRAD, {"train", "digits", "--address", address_, "--device", "OPENCL:0", "--data",
                 "tests/data/digits/digits.csv.gz", "--plot", "never"});
  const testing::Output output = train.Wait();
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const size_t last = output.text.rfind("held out ");
  ASSERT_NE(last, std::string::npos) << output.text;
  EXPECT_GE(std::stod(output.text.substr(last + 9)), 97.0) << output.text;
}

}  // namespace
}  // namespace telegrad
