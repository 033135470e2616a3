// GPUs behind the daemon, on fake drivers: they are listed, their memory is written and read
// though the host cannot address it, and one that cannot be used is logged and stops nothing.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "engine/base/strings.h"
#include "engine/ir/content_hash.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct OfferedGpu {
  std::vector<std::string> flags;
  std::string device, arch;
  bool isolated = false;  // its driver is opened in a worker
};

OfferedGpu InWorker(OfferedGpu gpu) {
  gpu.flags.insert(gpu.flags.end(), {"--isolate", "device"});
  gpu.isolated = true;
  return gpu;
}

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

// Slot 1 = 2 (x + x reversed), by two kernels with a temporary between them.
FrozenGraph Mirrored(int64_t elements) {
  Graph g;
  const Shape shape{elements};
  const int64_t axis[] = {0};
  UOp value = g.Param(0, DType::kFloat32, shape);
  for (int i = 0; i < 2; ++i) {
    if (i > 0) value = g.Make(Op::kContiguous, {value});
    value = g.Make(Op::kAdd, {value, g.Make(Op::kFlip, {value}, axis)});
  }
  const UOp out = g.Param(1, DType::kFloat32, shape);
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {out, value})}));
}

// A kernel faults, and the GPU with it; the daemon opens it again, and what was compiled before
// goes on in the new generation, its temporaries with it.
TEST_P(DaemonOnGpus, AreBroughtBackAfterAFault) {
  if (GetParam().isolated) {
    GTEST_SKIP() << "no variable of a fake reaches a worker; hosted_device_test has faults there";
  }
  const std::string gpu = GetParam().device;
  ASSERT_EQ(setenv("FAKE_CUDA_FAULT_LAUNCH", "3", 1), 0);  // of the second run
  Start(GetParam().flags);
  ASSERT_EQ(unsetenv("FAKE_CUDA_FAULT_LAUNCH"), 0);
  const auto session = Session();
  const FrozenGraph graph = Mirrored(100);
  ASSERT_TRUE(session->Put(graph.root()).Get().ok());
  std::vector<float> x(100), y(100);
  for (int i = 0; i < 100; ++i) x[i] = static_cast<float>(i * i);
  const auto run = [&](uint64_t in, uint64_t out) {
    const uint64_t handles[] = {in, out};
    return session->Run(ContentHash(graph.root()), handles).Get().status();
  };
  const auto make = [&](uint64_t in, uint64_t out) {
    session->Alloc(in, 400, gpu);
    session->Alloc(out, 400, gpu);
    session->WriteCopy(in, 0, Bytes(x));
  };
  make(1, 2);
  ASSERT_EQ(run(1, 2), absl::OkStatus());
  const absl::Status faulted = run(1, 2);
  EXPECT_EQ(faulted.code(), absl::StatusCode::kUnavailable) << faulted;
  EXPECT_THAT(std::string(faulted.message()), HasSubstr(StrCat(gpu, " (generation 1) failed")));
  bool healthy = false;
  while (!healthy) {  // until the daemon has looked twice
    const auto devices = connection_->ListDevices();
    ASSERT_TRUE(devices.ok()) << devices.status();
    healthy = (*devices)[1].healthy;
  }
  EXPECT_THAT(std::string(run(1, 2).message()),
              HasSubstr(StrCat("memory of ", gpu, " is of generation 1, which was lost")));
  make(3, 4);
  ASSERT_EQ(run(3, 4), absl::OkStatus());
  ASSERT_TRUE(session->Read(4, 0, Writable(y)).Get().ok());
  for (int i = 0; i < 100; ++i) ASSERT_EQ(y[i], 2 * (x[i] + x[99 - i])) << i;
}

// The order of sums is not fixed on GPUs, so a daemon that promises it has none.
TEST_P(DaemonOnGpus, AreNotForADeterministicDaemon) {
  std::vector<std::string> args = GetParam().flags;
  args.insert(args.end(), {"--listen", "127.0.0.1:0", "--log-level", "off", "--opencl-devices", "0",
                           "--deterministic"});
  const testing::Output ended = testing::RunProgram(TELEGRADD, args);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.text, AllOf(HasSubstr("--deterministic: " + GetParam().device),
                                HasSubstr("start without it")));
}

const OfferedGpu kNvidia = {{"--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1",
                             "--cuda-memory", "1000000", "--hip-devices", "0"},
                            "CUDA:0",
                            "sm_90a"};
const OfferedGpu kAmd = {{"--hip-library", TELEGRAD_FAKE_HIP, "--hip-devices", "1", "--hip-memory",
                          "1000000", "--cuda-devices", "0"},
                         "HIP:0",
                         "gfx942"};

INSTANTIATE_TEST_SUITE_P(Gpus, DaemonOnGpus,
                         ::testing::Values(kNvidia, kAmd, InWorker(kNvidia), InWorker(kAmd)),
                         [](const auto& info) {
                           return info.param.arch + (info.param.isolated ? "_in_worker" : "");
                         });

// Where ptxas is found and takes our code, it makes cubins, in a compile worker; else the driver
// translates what it gets.
TEST_F(DaemonTest, SaysWhoMakesTheCodeOfGpus) {
  // One that fails once the daemon has tried it: the driver gets PTX then.
  const std::string failing = StrCat(::testing::TempDir(), "failing_ptxas_", getpid());
  std::ofstream(failing)
      << "#!/bin/sh\n[ \"$1\" = --version ] || grep -q nothing \"$3\" || exit 3\n"
      << "exec " FAKE_PTXAS " \"$@\"\n";
  ASSERT_EQ(chmod(failing.c_str(), 0700), 0);
  for (const std::string& ptxas : {std::string(FAKE_PTXAS), failing, std::string("/nowhere/ptxas"),
                                   std::string("/bin/false")}) {
    Start({"--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1", "--hip-devices", "0",
           "--ptxas", ptxas, "--nvjitlink", ""});
    const auto devices = connection_->ListDevices();
    ASSERT_TRUE(devices.ok()) << devices.status();
    EXPECT_THAT((*devices)[1].target, ::testing::EndsWith(ptxas == FAKE_PTXAS || ptxas == failing
                                                              ? ", code by ptxas V0.0.1"
                                                              : ", code by the driver"));
    const auto session = Session();
    const FrozenGraph graph = DoubleGraph(3);
    const std::vector<float> x{1, 2, 3};
    std::vector<float> y(3);
    session->Alloc(1, 12, "CUDA:0");
    session->Alloc(2, 12, "CUDA:0");
    session->WriteCopy(1, 0, Bytes(x));
    session->Put(graph.root());
    const uint64_t handles[] = {2, 1};
    session->Run(ContentHash(graph.root()), handles);
    const auto read = session->Read(2, 0, Writable(y));
    ASSERT_TRUE(read.Get().ok()) << read.Get().status();
    EXPECT_THAT(y, ElementsAre(2, 4, 6));
  }
}

// Where there is no ptxas, a library makes them in a compile worker. The daemon never opens it.
TEST_F(DaemonTest, WithoutPtxasALibraryMakesTheCodeOfGpus) {
  for (const bool workers : {true, false}) {
    SCOPED_TRACE(workers);
    Start({"--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1", "--hip-devices", "0",
           "--ptxas", "/nowhere/ptxas", "--nvjitlink", FAKE_NVJITLINK, "--compile-workers",
           workers ? "1" : "0", "--log-level", "info"});
    const auto devices = connection_->ListDevices();
    ASSERT_TRUE(devices.ok()) << devices.status();
    EXPECT_THAT((*devices)[1].target,
                ::testing::EndsWith(workers ? ", code by nvJitLink 0.7" : ", code by the driver"));
    const auto session = Session();
    const FrozenGraph graph = DoubleGraph(3);
    const std::vector<float> x{1, 2, 3};
    std::vector<float> y(3);
    session->Alloc(1, 12, "CUDA:0");
    session->Alloc(2, 12, "CUDA:0");
    session->WriteCopy(1, 0, Bytes(x));
    session->Put(graph.root());
    const uint64_t handles[] = {2, 1};
    session->Run(ContentHash(graph.root()), handles);
    const auto read = session->Read(2, 0, Writable(y));
    ASSERT_TRUE(read.Get().ok()) << read.Get().status();
    EXPECT_THAT(y, ElementsAre(2, 4, 6));
    std::ifstream maps(StrCat("/proc/", daemon_->pid(), "/maps"));
    const std::string all{std::istreambuf_iterator<char>(maps), {}};
    EXPECT_THAT(all, HasSubstr("libcuda.so.1"));
    EXPECT_THAT(all, ::testing::Not(HasSubstr("nvjitlink")));
    connection_.reset();
    daemon_->Signal(SIGTERM);
    EXPECT_THAT(daemon_->Wait().text,
                ::testing::ContainsRegex(StrCat("ptxas_unused arch=sm_[0-9a]+ instead=\"",
                                                workers ? "nvJitLink 0.7" : "the driver",
                                                "\" reason=\".*/nowhere/ptxas")));
  }
}

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
