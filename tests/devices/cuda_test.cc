// What only GPUs do, on the fake driver: graphs and their updates, peers, faults, and the
// messages about drivers and GPUs that cannot be used.
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>

#include "engine/base/status.h"
#include "engine/compile/ptxas.h"
#include "tests/devices/cuda_fixture.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(Cuda, OpensEveryGpu) {
  fake_.Set("capability", 80);
  fake_.Set("multiprocessors", 8);
  Open();
  EXPECT_THAT(names_, ElementsAre("CUDA:0", "CUDA:1"));
  EXPECT_THAT(notes_, SizeIs(0));
  EXPECT_EQ(device().target().arch, "sm_80");
  EXPECT_EQ(device().target().threads, 8);
  EXPECT_TRUE(device().target().has(ParallelLevel::kGroups));
  EXPECT_GT(device().target().local_bytes, 48 << 10);
  EXPECT_GT(device().rates().bytes, 0);
  const ArithmeticRates rates = device().rates().flops;
  EXPECT_DOUBLE_EQ(rates[Arithmetic::kVectorF32], 0.7 * 8 * 1e9 * 128);  // at 1 GHz
  EXPECT_DOUBLE_EQ(rates[Arithmetic::kMatrixF16], 16 * rates[Arithmetic::kVectorF32]);
  EXPECT_EQ(rates[Arithmetic::kVectorI32], 0);
  EXPECT_GT(device().memory_limit(), 0);
  EXPECT_LT(device().memory_limit(), 64 << 20);  // there is a reserve
}

// A copy queue for each direction, if the GPU copies in both at a time.
TEST_F(Cuda, HasAsManyCopyQueuesAsItsEngines) {
  for (const auto& [engines, queues] : {std::pair(0, 2), {1, 2}, {2, 3}, {5, 3}}) {
    fake_.Set("copy_engines", engines);
    Open();
    EXPECT_THAT(device().queues(), SizeIs(queues)) << engines;
    EXPECT_TRUE(device().queues()[0]->takes().compute);
    EXPECT_EQ(device().queue(QueueKind::kCopy).name(), "CUDA:0 copy");
    EXPECT_EQ(&device().queue(QueueKind::kCopy), device().queues()[1]);
    EXPECT_EQ(device().queues().back()->takes(), kCopiesOnly);
    devices_.clear();
  }
  EXPECT_EQ(fake_.Count("live_streams"), 0);
}

// What its users have of its queues is true in each generation.
TEST_F(Cuda, DoesNotComeBackWithOtherQueues) {
  Open();
  Queue& second = *device().queues()[2];
  EXPECT_EQ(second.name(), "CUDA:0 copy 2");
  const auto commands = *device().Encode({NextCommand(Next())});
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(device().queue().Submit(commands, {Buffer(1)}, {})->Wait().ok());
  fake_.Set("copy_engines", 1);
  const absl::Status refused = device().Recover();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(refused.message(), "CUDA:0 came back with other queues than it had");
  EXPECT_FALSE(device().Health().ok());
  fake_.Set("copy_engines", 2);
  EXPECT_EQ(device().Recover(), absl::OkStatus());
  const BufferView from = Buffer(1), to = Buffer(1);
  Fill(from, "x");
  const auto copy = *device().Encode({CopyCommand({{0, 0}, {1, 0}, 1})});
  EXPECT_EQ(second.Submit(copy, {to, from}, {})->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(to), "x");
  EXPECT_EQ(Unasked(fake_.Problems()), "");
}

TEST_F(Cuda, OpensAsManyAsItIsTold) {
  CudaOptions options = FakeOptions();
  options.devices = 1;
  options.memory_limit = 1 << 20;
  Open(options);
  EXPECT_THAT(names_, ElementsAre("CUDA:0"));
  EXPECT_EQ(device().memory_limit(), 1 << 20);
  devices_.clear();
  names_.clear();
  options.devices = 0;
  Open(options);
  EXPECT_THAT(names_, SizeIs(0));
  EXPECT_THAT(notes_, SizeIs(0));
}

// What cannot be used is said, and nothing fails.

TEST_F(Cuda, NoDriver) {
  Open({.library = "/no/such/libcuda.so.1"});
  EXPECT_THAT(names_, SizeIs(0));
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("no NVIDIA driver"),
                                        HasSubstr("/no/such/libcuda.so.1"))));
}

TEST_F(Cuda, NoGpu) {
  fake_.Set("devices", 0);
  Open();
  EXPECT_THAT(names_, SizeIs(0));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("no NVIDIA GPU")));
}

TEST_F(Cuda, AnOldDriver) {
  fake_.Set("driver_version", 11040);
  Open();
  EXPECT_THAT(names_, SizeIs(0));
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("too old"), HasSubstr("11.4"),
                                        HasSubstr("expected 12.0 or later"))));
}

TEST_F(Cuda, ADriverThatLacksASymbol) {
  Open({.library = TELEGRAD_FAKE_CUDA_OLD});
  EXPECT_THAT(names_, SizeIs(0));
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("lacks cuGraphAddKernelNode_v2"),
                                        HasSubstr("CUDA 12.0 or later"))));
}

TEST_F(Cuda, SomethingThatIsNoDriver) {
  Open({.library = "libm.so.6"});
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("libm.so.6 is not a CUDA driver")));
}

TEST_F(Cuda, ADriverThatDoesNotWork) {
  fake_.Set("init_error", 803);
  Open();
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("does not work"),
                                        HasSubstr("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"))));
}

TEST_F(Cuda, ABusyGpuIsLeftOutAndTheOtherGoesOn) {
  fake_.Set("busy_device", 0);
  Open();
  EXPECT_THAT(names_, ElementsAre("CUDA:1"));
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("CUDA:0 ("), HasSubstr("left out"),
                                        HasSubstr("CUDA_ERROR_DEVICE_UNAVAILABLE"))));
  const BufferView buffer = Buffer(3);
  Write(buffer, "abc");
  EXPECT_EQ(Read(buffer), "abc");
}

TEST_F(Cuda, AnUnknownArchitecture) {
  fake_.Set("capability", 75);
  Open();
  EXPECT_THAT(names_, SizeIs(0));
  ASSERT_THAT(notes_, SizeIs(2));
  EXPECT_THAT(notes_[1],
              AllOf(HasSubstr("CUDA:1 ("), HasSubstr("7.5"), HasSubstr("expected 8.0 or later")));
}

TEST_F(Cuda, LeavesNothingBehind) {
  for (const int is_virtual : {0, 1}) {
    fake_.Set("virtual_memory", is_virtual);
    {
      Open();
      const BufferView buffer = Buffer(2);
      const auto program = Next();
      EXPECT_EQ(Run({NextCommand(program), NextCommand(program, 0, 1)}, {buffer}),
                absl::OkStatus());
      EXPECT_EQ(Read(buffer), "\1\1");
      devices_.clear();
      EXPECT_EQ(buffer.memory->size(), 2);  // which outlives its device
    }
    for (const char* counter :
         {"live_allocations", "live_host_allocations", "live_contexts", "live_streams",
          "live_events", "live_modules", "live_graphs", "live_mappings", "live_reservations"}) {
      EXPECT_EQ(fake_.Count(counter), 0) << counter;
    }
    EXPECT_EQ(fake_.Problems(), "");
  }
}

// Launches.

TEST_F(Cuda, SlicesAKernelByItsWorkgroups) {
  Open();
  const BufferView buffer = Buffer(8);
  Fill(buffer, "aaaaaaaa");
  Command part = NextCommand(Next());
  part.launch.begin = 2;
  part.launch.grid.x = 3;
  Command nothing = part;
  nothing.launch.grid.x = 0;
  EXPECT_EQ(Run({part, nothing}, {buffer}), absl::OkStatus());
  EXPECT_EQ(Read(buffer), "aabbbaaa");
}

TEST_F(Cuda, AReplayIsOneGraphLaunchAndTellsOnlyWhatHasChanged) {
  Open();
  const auto program = Next();
  // Two launches and a copy of buffer 0, one launch of buffer 1.
  const auto commands =
      *device().Encode({NextCommand(program, 0, 0), NextCommand(program, 0, 1),
                        CopyCommand({{0, 2}, {0, 0}, 1}), NextCommand(program, 1, 0)});
  const BufferView a = Buffer(4), b = Buffer(4), c = Buffer(4);
  const auto run = [&](const BufferView& first, const BufferView& second) {
    const auto point = device().queue().Submit(commands, {first, second}, {});
    EXPECT_EQ(point->Wait(), absl::OkStatus());
  };
  run(a, b);
  EXPECT_EQ(fake_.Count("graph_launches"), 1);
  EXPECT_EQ(fake_.Count("node_updates"), 0);
  const int64_t graphs = fake_.Count("live_graphs");
  run(a, b);
  run(a, b);
  EXPECT_EQ(fake_.Count("graph_launches"), 3);
  EXPECT_EQ(fake_.Count("node_updates"), 0);
  EXPECT_EQ(fake_.Count("launches"), 9);
  run(a, c);  // of four nodes, one has another address
  EXPECT_EQ(fake_.Count("graph_launches"), 4);
  EXPECT_EQ(fake_.Count("node_updates"), 1);
  run(c, a);
  EXPECT_EQ(fake_.Count("node_updates"), 5);
  EXPECT_EQ(fake_.Count("live_graphs"), graphs);
  EXPECT_EQ(Read(a), std::string("\5\4\4\0", 4));
  EXPECT_EQ(Read(b), std::string("\3\0\0\0", 4));
  EXPECT_EQ(Read(c), std::string("\2\1\2\0", 4));
}

// With other buffers each, while none of them can end: an instance in flight is not changed.
TEST_F(Cuda, ManyReplaysInFlight) {
  Open();
  const auto program = Next();
  const auto commands = *device().Encode({NextCommand(program, 0, 0), NextCommand(program, 0, 0)});
  fake_.Set("delay_us", 2000);
  std::vector<BufferView> buffers;
  std::vector<TimelinePoint> points;
  for (int i = 0; i < 12; ++i) {
    buffers.push_back(Buffer(1));
    points.push_back(*device().queue().Submit(commands, {buffers.back()}, {}));
    points.push_back(*device().queue().Submit(commands, {buffers.back()}, {}));
  }
  for (const TimelinePoint& point : points) EXPECT_EQ(point.Wait(), absl::OkStatus());
  for (const BufferView& buffer : buffers) EXPECT_EQ(Read(buffer), "\4");
  EXPECT_EQ(fake_.Count("graph_launches"), 24);
}

// The driver takes a while for that, and the submitter serves others.
TEST_F(Cuda, AGraphIsNotBuiltBySubmitters) {
  Open();
  const BufferView buffer = Buffer(1);
  const auto program = Next();
  const auto commands = *device().Encode({NextCommand(program), NextCommand(program)});
  fake_.Set("hold_instantiate", 1);
  std::promise<TimelinePoint> submitted;
  std::thread submitter(
      [&] { submitted.set_value(*device().queue().Submit(commands, {buffer}, {})); });
  auto point = submitted.get_future();
  EXPECT_EQ(point.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  fake_.Set("hold_instantiate", 0);
  submitter.join();
  EXPECT_EQ(point.get().Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), "\2");
  EXPECT_EQ(fake_.Count("graph_launches"), 1);
}

TEST_F(Cuda, OneCommandIsLaunchedWithoutAGraph) {
  Open();
  const BufferView buffer = Buffer(1);
  EXPECT_EQ(Run({NextCommand(Next())}, {buffer}), absl::OkStatus());
  EXPECT_EQ(fake_.Count("launches"), 1);
  EXPECT_EQ(fake_.Count("graph_launches"), 0);
}

TEST_F(Cuda, TracesLaunches) {
  Open();
  const BufferView buffer = Buffer(1);
  const auto program = Next();
  const auto commands = *device().Encode({NextCommand(program), NextCommand(program)});
  const auto trace = std::make_shared<RunTrace>();
  const int64_t before = SteadyNs();
  EXPECT_EQ(device().queue().Submit(commands, {buffer}, {}, trace)->Wait(), absl::OkStatus());
  const std::vector<TraceEvent> events = trace->events();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].name, "next");
  EXPECT_EQ(events[0].queue, "CUDA:0 compute");
  EXPECT_LE(before, events[0].begin_ns);
  EXPECT_LE(events[0].begin_ns, events[0].end_ns);
  EXPECT_LE(events[0].end_ns, events[1].begin_ns);
  EXPECT_LE(events[1].end_ns, SteadyNs());
}

TEST_F(Cuda, ACancelledRunEndsBeforeItsNextBatch) {
  Open();
  const BufferView buffer = Buffer(1);
  Command slow = NextCommand(Next());
  slow.launch.bytes = device().rates().bytes;  // predicted to take a second, so each is a batch
  const auto cancellation = std::make_shared<Cancellation>();
  const auto commands = *device().Encode(std::vector<Command>(10, slow));
  fake_.Set("hang_launch", 1);
  const TimelinePoint point =
      *device().queue().Submit(commands, {buffer}, {}, nullptr, cancellation);
  while (fake_.Get("hang_launch") != 0) std::this_thread::yield();  // the first is on its way
  cancellation->Cancel();
  fake_.Release();
  EXPECT_EQ(point.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_LT(fake_.Count("launches"), 10);
  EXPECT_EQ(Run({NextCommand(Next())}, {buffer}), absl::OkStatus());
}

// A driver may wait for all that runs before it unloads a program, of which work has the last
// reference.
TEST_F(Cuda, UnloadingDelaysNobody) {
  Open();
  const BufferView buffer = Buffer(1);
  fake_.Set("hold_unload", 1);
  fake_.Set("hang_launch", 1);
  const auto submit = [&] {
    const auto commands = *device().Encode({NextCommand(Next())});
    return *device().queue().Submit(commands, {buffer}, {});
  };
  const TimelinePoint point = submit();
  fake_.Release();
  const absl::Status ended = point.Wait(absl::Seconds(30));
  if (!ended.ok()) fake_.Set("hold_unload", 0);
  ASSERT_EQ(ended, absl::OkStatus());
  while (fake_.Count("unloads") == 0) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(submit().Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), std::string(1, 4));
  EXPECT_EQ(fake_.Count("unloads"), 1) << "one at a time";
  fake_.Set("hold_unload", 0);
  devices_.clear();
  EXPECT_EQ(fake_.Count("live_modules"), 0);
  EXPECT_EQ(fake_.Count("unloads"), 4);
}

// A function that its first launch loads would wait for what other queues run.
TEST_F(Cuda, ProgramsAreLoadedBeforeTheirFirstLaunch) {
  unsetenv("CUDA_MODULE_LOADING");
  fake_.Set("lazy_load", 1);
  Open();
  EXPECT_EQ(Run({NextCommand(Next())}, {Buffer(1)}), absl::OkStatus());
  EXPECT_EQ(fake_.Count("lazy_loads"), 0);
}

TEST_F(Cuda, WhoeverSetsHowModulesAreLoadedDecides) {
  setenv("CUDA_MODULE_LOADING", "LAZY", /*replace=*/1);
  fake_.Set("lazy_load", 1);
  Open();
  unsetenv("CUDA_MODULE_LOADING");
  EXPECT_EQ(Run({NextCommand(Next())}, {Buffer(1)}), absl::OkStatus());
  EXPECT_EQ(fake_.Count("lazy_loads"), 1);
}

// Memory.

TEST_F(Cuda, CopiesGoFromGpuToGpu) {
  for (const int64_t access : {1, 0}) {
    fake_.Set("peer_access", access);
    Open();
    const BufferView a = Buffer(8, 0), b = Buffer(8, 1);
    const TimelinePoint sent = Write(a, "01234567", 0);
    EXPECT_EQ(&CopyDevice(device(1), device(0)), &device(1));
    EXPECT_EQ(device(1).AccessTo(device()),
              PeerAccess{access == 1 ? PeerPath::kDirect : PeerPath::kThroughHost});
    EXPECT_FALSE(NeedsHost(device(1), device()));
    const auto copied = Copy(device(1), b, a, {sent});
    ASSERT_TRUE(copied.ok()) << copied.status();
    EXPECT_EQ(copied->Wait(), absl::OkStatus());
    EXPECT_EQ(Read(b, 1), "01234567");
    // Untouched memory of another GPU is zero, too.
    EXPECT_EQ(Copy(device(1), b, Buffer(8, 0))->Wait(), absl::OkStatus());
    EXPECT_EQ(Read(b, 1), std::string(8, '\0'));
    // Its programs run on its own memory only.
    EXPECT_EQ(Run({NextCommand(Next())}, {b}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Copy(device(1), HostBuffer(*host_, "12345678"), a).status().code(),
              absl::StatusCode::kInvalidArgument);
    devices_.clear();
  }
}

// What a driver says of access between GPUs is tried: a path on which bytes change is not used, and
// the devices say so. 1: the direct one, 2: also the driver's through the host.
TEST_F(Cuda, APathThatChangesBytesIsNotUsed) {
  for (const bool is_virtual : {false, true}) {
    for (const int64_t corrupt : {1, 2}) {
      SCOPED_TRACE(corrupt);
      fake_.Set("virtual_memory", is_virtual ? 1 : 0);
      fake_.Set("corrupt_peer", corrupt);
      notes_.clear();
      Open();
      EXPECT_EQ(device(1).AccessTo(device()),
                PeerAccess{corrupt == 1 ? PeerPath::kThroughHost : PeerPath::kNone});
      EXPECT_EQ(device().AccessTo(device(1)), device(1).AccessTo(device()));
      EXPECT_EQ(NeedsHost(device(1), device()), corrupt == 2);
      ASSERT_THAT(notes_, SizeIs(static_cast<size_t>(corrupt)));
      EXPECT_THAT(notes_[0], AllOf(HasSubstr("copies between CUDA:0 and CUDA:1 go through the "
                                             "host: of 262144 bytes that CUDA:0 copied to CUDA:1"),
                                   HasSubstr("arrived changed")));
      const BufferView a = Buffer(8, 0), b = Buffer(8, 1);
      Fill(a, "01234567", 0);
      if (corrupt == 1) {
        EXPECT_EQ(Copy(device(1), b, a)->Wait(), absl::OkStatus());
        EXPECT_EQ(Read(b, 1), "01234567");
      }
      EXPECT_EQ(fake_.Count("live_peer_access"), 0);
      // Nor after a loss.
      fake_.Set("fault_launch", 1);
      EXPECT_FALSE(Run({NextCommand(Next())}, {Buffer(1)}).ok());
      ASSERT_EQ(device().Recover(), absl::OkStatus());
      EXPECT_NE(device().AccessTo(device(1)), PeerAccess{PeerPath::kDirect});
      devices_.clear();
    }
  }
}

// Programs.

TEST_F(Cuda, SaysWhatIsWrongWithAProgram) {
  Open();
  const auto load = [&](const ProgramImage& image) { return device().Load(image).status(); };
  ProgramImage image = NextImage();
  image.binary = ".version 7.8\n.target sm_80\n.address_size 64\nnonsense\n";
  const absl::Status syntax = load(image);
  EXPECT_EQ(syntax.code(), absl::StatusCode::kInvalidArgument) << syntax;
  EXPECT_THAT(std::string(syntax.message()), AllOf(HasSubstr("CUDA:0"), HasSubstr("program next"),
                                                   HasSubstr("CUDA_ERROR_INVALID_PTX")));
  image = NextImage();
  image.name = "nex";
  EXPECT_EQ(load(image).code(), absl::StatusCode::kInvalidArgument);
  image = NextImage();
  image.signature.group.x = 2000;
  EXPECT_THAT(std::string(load(image).message()), HasSubstr("2000 x 1 x 1 threads in a workgroup"));
  image = NextImage();
  image.signature.local_bytes = 1 << 20;
  EXPECT_THAT(std::string(load(image).message()), HasSubstr("1048576 bytes of local memory"));
  image.signature.local_bytes = 60 << 10;  // has to be asked for
  EXPECT_EQ(load(image), absl::OkStatus());
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

// Code that was assembled elsewhere is not translated, and its parameters are what the signature
// says.
TEST_F(Cuda, TakesCubins) {
  fake_.Set("capability", 86);
  Open();
  fake_.Set("jit_error", 209);
  ProgramImage image = NextImage();
  image.binary = *AssemblePtx({FAKE_PTXAS, ""}, kNextPtx, "sm_80", "next");
  const auto program = device().Load(image);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(fake_.Count("modules_translated"), 0);
  const BufferView buffer = Buffer(3);
  Command next = NextCommand(*program);
  next.launch.grid.x = 3;
  ASSERT_EQ(Run({next}, {buffer}), absl::OkStatus());
  EXPECT_EQ(Read(buffer), std::string("\1\1\1"));
  image.signature.parameters = KernelParameters(2);
  EXPECT_THAT(std::string(device().Load(image).status().message()),
              HasSubstr("it takes 2 parameters, its signature says 3"));
  image = NextImage();
  image.binary = "\177ELF and no cubin";
  EXPECT_EQ(device().Load(image).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

// A cubin is for one generation of GPUs; what makes them is asked for that generation alone.
TEST_F(Cuda, CubinsAreForOneGeneration) {
  std::vector<std::string> asked;
  CudaOptions options = FakeOptions();
  options.assembler = [&](const std::string& arch) -> absl::StatusOr<std::string> {
    asked.push_back(arch);
    return "cubin:V1:/bin/ptxas";
  };
  for (const int64_t capability : {80, 89, 90, 100, 120}) {
    devices_.clear();
    asked.clear();
    fake_.Set("capability", capability);
    Open(options);
    const bool has = capability < 100;
    EXPECT_EQ(asked.size(), has ? devices_.size() : 0u) << capability;
    EXPECT_EQ(device().target().features, has ? "cubin:V1:/bin/ptxas" : "") << capability;
  }
}

TEST_F(Cuda, TheDriversCompilerFails) {
  Open();
  fake_.Set("jit_error", 209);
  EXPECT_THAT(std::string(device().Load(NextImage()).status().message()),
              HasSubstr("CUDA_ERROR_NO_BINARY_FOR_GPU"));
  fake_.Set("jit_error", 0);
  fake_.Set("ptx_version", 70);
  const absl::Status old = device().Load(NextImage()).status();
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition) << old;
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

TEST_F(Cuda, RefusesWhatItCannotEncode) {
  Open();
  const auto program = Next();
  const auto refuse = [&](const Command& command, const std::string& why) {
    const absl::Status status = device().Encode({command}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("command 0"), HasSubstr(why)));
  };
  refuse(NextCommand(Next(1)), "not loaded on CUDA:0");
  Command command = NextCommand(program);
  command.launch.arguments.push_back({0, 0});
  refuse(command, "2 arguments for a program of 1");
  command = NextCommand(program);
  command.launch.grid.x = int64_t{1} << 31;
  refuse(command, "2147483648 workgroups");
  const auto launch = *device().Encode({NextCommand(program)});
  EXPECT_EQ(device().queue(QueueKind::kCopy).Submit(launch, {Buffer(1)}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device().queue().Submit(launch, {HostBuffer(*host_, "1")}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device(1).queue().Submit(launch, {Buffer(1, 1)}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Faults.

TEST_F(Cuda, AFaultFailsTheDeviceAndNothingElse) {
  Open();
  const BufferView buffer = Buffer(2), other = Buffer(2, 1);
  const auto program = Next();
  fake_.Set("fault_launch", 2);
  const auto commands = *device().Encode({NextCommand(program), NextCommand(program, 0, 1)});
  const auto point = device().queue().Submit(commands, {buffer}, {});
  ASSERT_TRUE(point.ok()) << point.status();
  const absl::Status failed = point->Wait();
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
  EXPECT_THAT(std::string(failed.message()), AllOf(HasSubstr("CUDA:0 (generation 1) failed"),
                                                   HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
  EXPECT_EQ(device().Health(), failed);
  // Everything later is refused with the reason.
  EXPECT_EQ(device().queue().Submit(commands, {buffer}, {}).status(), failed);
  EXPECT_EQ(Copy(device(), HostBuffer(*host_, "12"), buffer).status(), failed);
  EXPECT_EQ(device().Alloc(1).status(), failed);
  EXPECT_EQ(device().Load(NextImage()).status(), failed);
  // The other GPU goes on.
  EXPECT_EQ(device(1).Health(), absl::OkStatus());
  Fill(other, "ab", 1);
  EXPECT_EQ(Read(other, 1), "ab");
}

// What a GPU has of a peer's memory is checked, too: the address is another's now.
TEST_F(Cuda, PeersKnowTheMemoryOfALostGeneration) {
  Open();
  const BufferView lost = Buffer(2), other = Buffer(2, 1);
  const auto commands = *device().Encode({NextCommand(Next())});
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(device().queue().Submit(commands, {lost}, {})->Wait().ok());
  ASSERT_EQ(device().Recover(), absl::OkStatus());
  const auto refused = Copy(device(1), other, lost);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("memory of CUDA:0 is of generation 1, which was lost"));
  // The new one is a peer as the old one was.
  const BufferView fresh = Buffer(2);
  Fill(fresh, "xy");
  EXPECT_EQ(device(1).AccessTo(device()), PeerAccess{PeerPath::kDirect});
  EXPECT_EQ(device().AccessTo(device(1)), PeerAccess{PeerPath::kDirect});
  EXPECT_EQ((*Copy(device(1), other, fresh)).Wait(), absl::OkStatus());
  EXPECT_EQ(Read(other, 1), "xy");
  EXPECT_EQ(Unasked(fake_.Problems()), "");
}

// A driver that refuses a new context is asked again.
TEST_F(Cuda, SaysWhyItDoesNotComeBack) {
  Open();
  const BufferView buffer = Buffer(2);
  const auto commands = *device().Encode({NextCommand(Next())});
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(device().queue().Submit(commands, {buffer}, {})->Wait().ok());
  fake_.Set("busy_device", 0);
  const absl::Status refused = device().Recover();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("CUDA:0 could not be brought back"),
                                                    HasSubstr("CUDA_ERROR_DEVICE_UNAVAILABLE")));
  EXPECT_EQ(device().Health().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(device().generation(), 1u);
  fake_.Set("busy_device", -1);
  EXPECT_EQ(device().Recover(), absl::OkStatus());
  EXPECT_EQ(device().generation(), 2u);
  EXPECT_EQ(device().queue().Submit(commands, {Buffer(2)}, {})->Wait(), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
