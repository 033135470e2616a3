// The device on the fake kernel driver: rings that wrap, back-pressure, semaphores between its
// queues, loss and recovery, and every call of the system failing once.
#include <algorithm>
#include <thread>

#include "devices/api/host_memory.h"
#include "devices/cubin/cubin.h"
#include "tests/nv/nv_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(Nv, IsWhatTheKernelDriverSays) {
  Open();
  EXPECT_EQ(device().name(), "NV:0");
  EXPECT_EQ(device().target().arch, "sm_90a");
  EXPECT_EQ(device().target().threads, 132);
  EXPECT_EQ(device().memory_limit(), FakeNv::kLimit);
  EXPECT_EQ(device().generation(), 1u);
  EXPECT_EQ(device().Recover().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Nv, IsLeftOutWithTheReason) {
  const auto note = [](const std::function<void(fakes::FakeDriver&, NvOptions&)>& change) {
    fakes::FakeDriver driver;
    driver.Start();
    NvOptions options = FakeNvOptions(driver);
    change(driver, options);
    std::vector<std::string> notes;
    EXPECT_THAT(OpenNvs(options, &notes), IsEmpty());
    EXPECT_THAT(driver.Live(), IsEmpty());
    return notes.empty() ? "" : notes[0];
  };
  EXPECT_EQ(note([](auto&, auto& options) { options.devices = 0; }), "");
  EXPECT_THAT(
      note([](auto&, auto& options) { options.assembler = absl::NotFoundError("no program"); }),
      HasSubstr("no program (--ptxas)"));
  EXPECT_THAT(note([](auto& driver, auto&) { driver.faults.missing = {"/dev/nvidiactl"}; }),
              HasSubstr("NV:0 is left out: bring-up: /dev/nvidiactl: No such file"));
  EXPECT_THAT(note([](auto& driver, auto&) { driver.version = "570.1"; }),
              HasSubstr("driver 570.1"));
  EXPECT_THAT(note([](auto& driver, auto&) { driver.cards = 0; }), HasSubstr("has no GPU"));
  EXPECT_THAT(note([](auto& driver, auto&) { driver.video_bytes = 1 << 20; }),
              HasSubstr("NV_ERR_NO_MEMORY"));
}

// Far more launches, copies and bytes than the rings have room for, in one order.
TEST_F(Nv, RingsWrapAndHoldTheHostUp) {
  Open();
  constexpr int kRuns = 300;
  const BufferView buffer = Buffer(16);
  const Command next = Next(3);
  TimelinePoint last;
  for (int i = 0; i < kRuns; ++i) {
    auto point = Run({next, CopyCommand({{0, 8}, {0, 0}, 8}), next}, {buffer});
    ASSERT_TRUE(point.ok()) << point.status();
    last = *point;
  }
  const absl::Status ended = last.Wait();
  ExpectNoErrors();  // of the GPU, which say more than the status
  ASSERT_EQ(ended, absl::OkStatus());
  std::string expected(16, '\0');
  expected[3] = static_cast<char>(2 * kRuns);
  expected[11] = static_cast<char>(2 * kRuns - 1);
  EXPECT_EQ(Read(buffer), expected);
  const auto& gpu = driver().gpu;
  EXPECT_EQ(driver().Locked([&] { return gpu.kernels; }), 2 * kRuns);
  // The ring of 16 entries was never full, for that would look empty.
  EXPECT_LT(driver().Locked([&] { return gpu.most_in_ring; }), 16u);
  ExpectNoErrors();
}

// A GPU that stands still fills the rings: whoever has more for it waits, and goes on with it.
TEST_F(Nv, AFullRingWaitsForTheGpu) {
  Open();
  const BufferView buffer = Buffer(1);
  const Command next = Next();
  ASSERT_EQ((*Run({next}, {buffer})).Wait(), absl::OkStatus());
  driver().Locked([&] { driver().faults.no_progress = true; });
  std::atomic<int> submitted{0};
  std::thread submitter([&] {
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(Run({next}, {buffer}).ok());
      ++submitted;
    }
  });
  // The ring holds less than 16 of them: the submitter stops there, or goes on to the queue.
  const auto in_ring = [&] { return driver().Locked([&] { return driver().gpu.kernels; }); };
  const int before = in_ring();
  while (submitted < 1) std::this_thread::yield();
  EXPECT_EQ(in_ring(), before);
  driver().Locked([&] { driver().faults.no_progress = false; });
  submitter.join();
  EXPECT_EQ(device().queue().last().Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), std::string(1, static_cast<char>(101)));
  ExpectNoErrors();
}

// What one queue waits for of the other, the GPU waits for.
TEST_F(Nv, QueuesAcquireEachOthersSemaphores) {
  Open();
  const BufferView buffer = Buffer(1), other = Buffer(1);
  const Command next = Next();
  ASSERT_EQ((*Run({next}, {other})).Wait(), absl::OkStatus());
  for (int i = 0; i < 20; ++i) {
    const TimelinePoint written = Copied(buffer, Host(std::string(1, 'a')));
    const auto ran = Run({next}, {buffer}, {written});
    ASSERT_TRUE(ran.ok());
    const BufferView out = Host("?");
    EXPECT_EQ(Copied(out, buffer, {*ran}).Wait(), absl::OkStatus());
    EXPECT_EQ(Bytes(out), "b");
  }
  EXPECT_GT(driver().Locked([&] { return driver().gpu.acquires; }), 0);
  ExpectNoErrors();
}

// Encoded once, replayed with other buffers and on them again: only what differs is written.
TEST_F(Nv, CommandsAreReplayedWithOtherBuffers) {
  Open();
  const auto encoded = *device().Encode({Next(), CopyCommand({{0, 1}, {0, 0}, 1}), Next(1)});
  std::vector<BufferView> buffers = {Buffer(2), Buffer(2), Buffer(2)};
  for (int round = 0; round < 5; ++round) {
    for (const BufferView& buffer : buffers) {
      ASSERT_EQ(device().queue().Submit(encoded, {buffer}, {})->Wait(), absl::OkStatus());
    }
  }
  for (const BufferView& buffer : buffers) EXPECT_EQ(Read(buffer), "\x05\x06");
  ExpectNoErrors();
}

TEST_F(Nv, CopiesOfUnevenLengthsAndPlaces) {
  Open();
  std::string bytes(300'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 13 + i / 251);
  const BufferView buffer = Buffer(static_cast<int64_t>(bytes.size()) + 7);
  Copied({buffer.memory, 7, buffer.length - 7}, Host(bytes));
  EXPECT_TRUE(Read(buffer) == std::string(7, '\0') + bytes);
  ExpectNoErrors();
}

// Variables of a module: initial values, through a constant bank and a relocation.
TEST_F(Nv, ProgramsReadTheirVariables) {
  Open();
  const std::string ptx = R"(.version 8.0
.target sm_90a
.address_size 64
.global .align 4 .b8 table[8] = {11, 0, 0, 0, 22, 0, 0, 0};
.visible .entry look(.param .u64 out, .param .u64 begin)
{
  .reg .b64 %rd<5>; .reg .b32 %r<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  mov.u64 %rd3, table;
  add.s64 %rd3, %rd3, %rd2;
  ld.global.u32 %r2, [%rd3];
  add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r2;
  ret;
}
)";
  auto image = CubinOf(ptx, "look");
  ASSERT_TRUE(image.ok()) << image.status();
  image->signature.group.x = 2;
  Command look;
  look.launch = Launch::Of(*device().Load(*image));
  look.launch.arguments = {{0, 0}};
  const BufferView buffer = Buffer(8);
  ASSERT_EQ((*Run({look}, {buffer})).Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), std::string("\x0b\0\0\0\x16\0\0\0", 8));
  ExpectNoErrors();
}

// Local memory of threads: none is there before a program needs it.
TEST_F(Nv, ProgramsHaveStacks) {
  Open([](NvOptions& options) { options.memory_limit = 600'000'000; });
  const std::string ptx = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry swap(.param .u64 out, .param .u64 begin)
{
  .local .align 4 .b8 kept[64];
  .reg .b64 %rd<6>; .reg .b32 %r<6>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  mov.u64 %rd3, kept;
  add.s64 %rd3, %rd3, %rd2;
  st.local.u32 [%rd3], %r1;
  ld.local.u32 %r2, [%rd3];
  add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r2;
  ret;
}
)";
  auto image = CubinOf(ptx, "swap");
  ASSERT_TRUE(image.ok()) << image.status();
  image->signature.group.x = 3;
  const int64_t before = device().memory_used();
  Command swap;
  swap.launch = Launch::Of(*device().Load(*image));
  swap.launch.arguments = {{0, 0}};
  const auto code = static_cast<int64_t>(Cubin::Read(image->binary, "swap")->bytes());
  EXPECT_EQ(device().memory_used() - before, int64_t{64} * 2048 * 132 + (code + 255) / 256 * 256);
  const BufferView buffer = Buffer(12);
  ASSERT_EQ((*Run({swap}, {buffer})).Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), std::string("\0\0\0\0\1\0\0\0\2\0\0\0", 12));
  ExpectNoErrors();
}

TEST_F(Nv, RefusesWhatIsNoProgramOfItsOwn) {
  Open();
  const auto message = [&](const ProgramImage& image) {
    const auto program = device().Load(image);
    return std::string(program.status().message());
  };
  EXPECT_THAT(message({.name = "next", .binary = kNextSm90}), HasSubstr("takes cubins"));
  ProgramImage image = *NextCubin();
  EXPECT_THAT(message({.name = "other", .binary = image.binary}),
              HasSubstr("no entry point other"));
  ProgramImage older = image;
  older.binary[48] = 80;  // e_flags: sm_80
  older.binary[49] = 0;
  EXPECT_THAT(message(older), HasSubstr("for another kind of GPU"));
  image.signature.group.x = 2;
  EXPECT_THAT(message(image), HasSubstr("requires 1"));
  image.signature.group.x = 1;
  image.signature.local_bytes = 1 << 20;
  EXPECT_THAT(message(image), HasSubstr("local memory"));
}

// A kernel that reads where nothing is mapped, seen by the error notifier.
TEST_F(Nv, AFaultLosesTheDevice) {
  Open();
  const BufferView buffer = Buffer(4), other = Buffer(4);
  Command next = Next();
  const Gate gate;
  const auto waiting = Copied(other, Host("wait"), {gate.point()});
  next.launch.begin = int64_t{1} << 40;  // far behind the buffer
  const auto faulted = Run({next}, {buffer});
  ASSERT_TRUE(faulted.ok());
  const absl::Status status = faulted->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("NV:0 reports Xid 31"));
  EXPECT_EQ(device().Health().code(), absl::StatusCode::kUnavailable);
  gate.Open();
  EXPECT_EQ(waiting.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(device().Alloc(1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Run({Next()}, {buffer}).status().code(), absl::StatusCode::kUnavailable);
}

// New channels under a new client; programs and commands go on, memory does not.
TEST_F(Nv, RecoversAsANewGeneration) {
  Open();
  const auto encoded = *device().Encode({Next(), Next()});
  BufferView old = Buffer(4);
  for (uint64_t generation = 2; generation < 5; ++generation) {
    driver().Locked([&] { driver().gpu.fault_in = 1; });
    EXPECT_EQ(device().queue().Submit(encoded, {old}, {})->Wait().code(),
              absl::StatusCode::kUnavailable);
    ASSERT_EQ(device().Recover(), absl::OkStatus());
    EXPECT_EQ(device().generation(), generation);
    EXPECT_EQ(device().Health(), absl::OkStatus());
    const auto lost = device().queue().Submit(encoded, {old}, {});
    EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(lost.status().message()),
                HasSubstr(StrCat("is of generation ", generation - 1, ", which was lost")));
    const BufferView fresh = Buffer(4);
    ASSERT_EQ(device().queue().Submit(encoded, {fresh}, {})->Wait(), absl::OkStatus());
    EXPECT_EQ(Read(fresh), std::string("\2\0\0\0", 4));
    old = fresh;
  }
}

TEST_F(Nv, AGpuThatIsStuckIsLostAndComesBack) {
  // Longer than a busy machine may keep the fake's thread from its work.
  Open([](NvOptions& options) { options.hang_limit = absl::Seconds(1); });
  const BufferView buffer = Buffer(4);
  const auto encoded = *device().Encode({Next()});
  ASSERT_EQ(device().queue().Submit(encoded, {buffer}, {})->Wait(), absl::OkStatus());
  driver().Locked([&] { driver().faults.no_progress = true; });
  const absl::Status status = device().queue().Submit(encoded, {buffer}, {})->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stuck"));
  driver().Locked([&] { driver().faults.no_progress = false; });
  ASSERT_EQ(device().Recover(), absl::OkStatus());
  const BufferView fresh = Buffer(4);
  EXPECT_EQ(device().queue().Submit(encoded, {fresh}, {})->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(fresh), std::string("\1\0\0\0", 4));
}

// A device that cannot be brought back says so, and can when its driver answers again.
TEST_F(Nv, SaysWhyItDoesNotComeBack) {
  Open();
  const BufferView buffer = Buffer(4);
  driver().Locked([&] { driver().gpu.fault_in = 1; });
  EXPECT_FALSE(Run({Next()}, {buffer})->Wait().ok());
  driver().Locked([&] { driver().faults.denied = {"/dev/nvidia0"}; });
  const absl::Status refused = device().Recover();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("could not be brought back"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Permission denied"));
  EXPECT_FALSE(device().Health().ok());
  EXPECT_FALSE(device().Alloc(1).ok());
  driver().Locked([&] { driver().faults.denied = {}; });
  EXPECT_EQ(device().Recover(), absl::OkStatus());
  EXPECT_EQ(Run({Next()}, {Buffer(4)})->Wait(), absl::OkStatus());
}

TEST_F(Nv, MemoryAndProgramsOutliveTheDevice) {
  Open();
  leaks_nothing_ = false;
  BufferView buffer = Buffer(1'000'000);
  auto encoded = *device().Encode({Next()});
  EXPECT_EQ(device().queue().Submit(encoded, {buffer}, {})->Wait(), absl::OkStatus());
  nv_->CloseDevice();
  EXPECT_EQ(buffer.memory->size(), 1'000'000);
  buffer = {};
  encoded = nullptr;
  program_ = nullptr;
  EXPECT_THAT(driver().Live(), IsEmpty());
}

// A small life of the device: open, allocate, pin, load, copy, launch, replay, read, close.
absl::Status Live(Device& device, Device& host) {
  TG_ASSIGN_OR_RETURN(auto memory, device.Alloc(100'000));
  TG_ASSIGN_OR_RETURN(auto large, device.Alloc(5'000'000));
  TG_ASSIGN_OR_RETURN(auto pinned, device.AllocOf(MemoryKind::kPinnedHost, 2));
  TG_ASSIGN_OR_RETURN(auto image, NextCubin());
  TG_ASSIGN_OR_RETURN(auto program, device.Load(image));
  Command next;
  next.launch = Launch::Of(program);
  next.launch.arguments = {{0, 0}};
  TG_ASSIGN_OR_RETURN(auto encoded, device.Encode({next, next}));
  const BufferView buffer = Whole(memory), out = HostBuffer(host, "??");
  TG_ASSIGN_OR_RETURN(auto ran, device.queue().Submit(encoded, {buffer}, {}));
  TG_RETURN_IF_ERROR(ran.Wait());
  TG_ASSIGN_OR_RETURN(auto to_pinned, Copy(device, Whole(pinned), {memory, 0, 2}, {ran}));
  TG_ASSIGN_OR_RETURN(auto copied, Copy(device, out, Whole(pinned), {to_pinned}));
  TG_RETURN_IF_ERROR(copied.Wait());
  return Bytes(out) == std::string("\2\0", 2) ? absl::OkStatus()
                                              : absl::DataLossError("other bytes");
}

// Each call that this life makes fails once: with a clear error, and nothing is left.
TEST(NvFaults, EveryCallMayFail) {
  std::unique_ptr<Device> host = OpenHost({.index = 7});
  struct Fault {
    int call = -1, system = -1;
    uint32_t status = 0;
  };
  struct Outcome {
    std::string error;
    int calls = 0, system_calls = 0;
    std::vector<std::string> names, live;
  };
  const auto run = [&](const Fault& fault) {
    Outcome out;
    fakes::FakeDriver driver;
    driver.faults.fail_call = fault.call;
    driver.faults.fail_status = fault.status;
    driver.faults.fail_system = fault.system;
    driver.Start();
    {
      NvOptions options = FakeNvOptions(driver);
      options.memory_limit = FakeNv::kLimit;
      std::vector<std::string> notes;
      auto devices = OpenNvs(options, &notes);
      if (devices.empty()) {
        out.error = notes.empty() ? "" : notes[0];
      } else {
        const absl::Status status = Live(*devices[0], *host);
        out.error = std::string(status.message());
      }
    }
    out.calls = driver.calls();
    out.system_calls = driver.system_calls();
    out.names = driver.call_names();
    out.live = driver.Live();
    return out;
  };
  const Outcome whole = run({});
  ASSERT_EQ(whole.error, "");
  ASSERT_THAT(whole.live, IsEmpty());
  ASSERT_GT(whole.calls, 100);
  int failed = 0;
  for (const uint32_t status : {0x51u, 0u}) {
    for (int call = 0; call < whole.calls; ++call) {
      const Outcome outcome = run({.call = call, .status = status});
      const std::string& name = outcome.names[static_cast<size_t>(call)];
      const std::string what = name + ", call " + std::to_string(call);
      // One that gives something back can fail, and that stays; so may what it holds.
      const bool gives_back = name == "RM_FREE" || name.find("UNMAP") != name.npos ||
                              name == "UVM 0x22" || name == "UVM 0x1c" || name == "UVM 0x1a" ||
                              name == "UVM 0x26";
      if (!gives_back) {
        EXPECT_THAT(outcome.live, IsEmpty()) << what;
      }
      if (outcome.error.empty()) continue;
      ++failed;
      const bool plain = status == 0 || name == "CARD_INFO" || name == "REGISTER_FD";
      EXPECT_THAT(outcome.error, HasSubstr(plain ? "Invalid argument" : "NV_ERR_NO_MEMORY"))
          << what;
    }
  }
  EXPECT_GT(failed, 2 * 60);
  for (int call = 0; call < whole.system_calls; ++call) {
    const Outcome outcome = run({.system = call});
    EXPECT_THAT(outcome.live, IsEmpty()) << "system call " << call;
    if (outcome.error.empty()) continue;
    EXPECT_THAT(outcome.error, ::testing::AnyOf(HasSubstr("Too many open files"),
                                                HasSubstr("Cannot allocate memory")))
        << "system call " << call;
  }
}

}  // namespace
}  // namespace telegrad
