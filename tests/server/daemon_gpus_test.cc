// GPUs behind the daemon, on fake drivers: they are listed, their memory is written and read
// though the host cannot address it, and one that cannot be used is logged and stops nothing.
#include "engine/ir/content_hash.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct OfferedGpu {
  std::vector<std::string> flags;
  std::string device, arch;
};

class DaemonOnGpus : public DaemonTest, public ::testing::WithParamInterface<OfferedGpu> {};

TEST_P(DaemonOnGpus, OffersThem) {
  const std::string gpu = GetParam().device;
  Start(GetParam().flags);
  std::vector<std::string> notes;
  const auto devices = connection_->ListDevices(&notes);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1].name, gpu);
  EXPECT_THAT((*devices)[1].target, HasSubstr(GetParam().arch));
  EXPECT_EQ((*devices)[1].memory_limit, 1'000'000);
  EXPECT_TRUE((*devices)[1].healthy);
  EXPECT_THAT(notes, IsEmpty());

  const auto session = Session();
  std::vector<float> x(1000), y(1000), z(1000, 1.0f);
  for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i);
  session->Alloc(1, 4000, gpu);
  session->Alloc(2, 4000, gpu);
  session->WriteCopy(1, 0, Bytes(x));
  const auto read = session->Read(1, 0, Writable(y));
  const auto zeros = session->Read(2, 0, Writable(z));
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  ASSERT_TRUE(zeros.Get().ok()) << zeros.Get().status();
  EXPECT_EQ(y, x);
  EXPECT_EQ(z, std::vector<float>(1000));
  // A graph runs where its buffers are.
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

INSTANTIATE_TEST_SUITE_P(
    Gpus, DaemonOnGpus,
    ::testing::Values(OfferedGpu{{"--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1",
                                  "--cuda-memory", "1000000", "--hip-devices", "0"},
                                 "CUDA:0",
                                 "sm_90a"},
                      OfferedGpu{{"--hip-library", TELEGRAD_FAKE_HIP, "--hip-devices", "1",
                                  "--hip-memory", "1000000", "--cuda-devices", "0"},
                                 "HIP:0",
                                 "gfx942"}),
    [](const auto& info) { return info.param.arch; });

TEST_F(DaemonTest, SaysWhichGpusItCannotUse) {
  Start({"--cuda-library", TELEGRAD_FAKE_CUDA_OLD, "--hip-devices", "0"});
  std::vector<std::string> notes;
  const auto devices = connection_->ListDevices(&notes);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 1u);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("lacks cuGraphAddKernelNode_v2")));
}

}  // namespace
}  // namespace telegrad
