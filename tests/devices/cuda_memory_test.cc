// Memory of a GPU whose driver has no virtual memory management, on the fake driver: what is kept
// for later, the limit, and what others do meanwhile.
#include <chrono>
#include <future>
#include <thread>

#include "engine/base/status.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/fakes/foreign_memory.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LibraryMemory : public Cuda {
 protected:
  // One GPU: between two, a pattern takes memory, too.
  void SetUp() override {
    fake_.Set("virtual_memory", 0);
    fake_.Set("devices", 1);
  }
  void TearDown() override { EXPECT_EQ(fake_.Count("maps"), 0); }
};

TEST_F(LibraryMemory, MemoryThatIsFreedServesTheNextAllocation) {
  Open();
  for (int i = 0; i < 10; ++i) {
    const BufferView buffer = Buffer(100'000 - i);
    Fill(buffer, "used");
    EXPECT_EQ(Read({buffer.memory, 0, 4}), "used");
  }
  EXPECT_EQ(fake_.Count("allocations"), 1);
  EXPECT_EQ(device().memory_used(), 0);
  EXPECT_EQ(device().memory_footprint(), fake_.Count("live_bytes"));
  EXPECT_EQ(Read(Buffer(100'000)), std::string(100'000, '\0'));
}

TEST_F(LibraryMemory, NoneOfItIsGivenBackWhenIdle) {
  Open();
  EXPECT_EQ(device().idle_memory(), nullptr);
}

TEST_F(LibraryMemory, OutOfMemory) {
  Open();
  const BufferView kept = Buffer(1000);
  {
    const BufferView dropped = Buffer(8 << 20);
  }
  fake_.Set("fail_allocation", 1);
  EXPECT_TRUE(device().Alloc(9 << 20).ok());  // what was kept went back, and there it was
  const int64_t before = device().memory_used();
  const auto more = device().Alloc(device().memory_limit());
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()),
              AllOf(HasSubstr("CUDA:0"), HasSubstr(StrCat(device().memory_limit()))));
  EXPECT_EQ(device().memory_used(), before);
  EXPECT_EQ(device().Health(), absl::OkStatus());
  EXPECT_EQ(Read({kept.memory, 0, 2}), std::string(2, '\0'));
}

// The library's free may wait for everything that the GPU runs. Only the thread that needs the room
// waits with it.
TEST_F(LibraryMemory, OthersAllocateWhileMemoryGoesBackToTheLibrary) {
  CudaOptions options = FakeOptions();
  options.memory_limit = 16 << 20;
  Open(options);
  Buffer(8 << 20);
  fake_.Set("hold_free", 1);
  auto large = std::async(std::launch::async, [&] { return device().Alloc(12 << 20); });
  while (fake_.Count("frees") == 0) std::this_thread::yield();
  const BufferView small = Buffer(1 << 20);
  Fill(small, "new");
  EXPECT_EQ(Read({small.memory, 0, 4}), std::string("new\0", 4));
  // The limit counts what the other thread is about to have.
  EXPECT_EQ(device().Alloc(4 << 20).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device().memory_footprint(), 13 << 20);
  EXPECT_NE(large.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  fake_.Set("hold_free", 0);
  const auto memory = large.get();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(device().memory_used(), 13 << 20);
  EXPECT_EQ(device().memory_footprint(), fake_.Count("live_bytes"));
}

// A call that gives something back may wait for all that the GPU runs. Others go on, and a reset of
// the GPU comes after it.
class HeldRelease : public LibraryMemory {
 protected:
  // While a thread drops `memory`, of which it has the last reference, by a call that `knob` holds
  // and `calls` counts.
  void ExpectOthersGoOn(std::shared_ptr<Memory> memory, const char* knob, const char* calls) {
    const BufferView old = Buffer(8);
    const auto program = Next();
    const int64_t before = fake_.Count(calls);
    fake_.Set(knob, 1);
    auto dropped = std::async(std::launch::async, [&] { memory = nullptr; });
    while (fake_.Count(calls) == before) std::this_thread::yield();
    const BufferView small = Buffer(1 << 20);
    Fill(small, "new");
    EXPECT_EQ(Read({small.memory, 0, 4}), std::string("new\0", 4));
    EXPECT_EQ(Run({NextCommand(program)}, {old}), absl::OkStatus());
    fake_.Set("fault_launch", 1);
    EXPECT_FALSE(Run({NextCommand(program)}, {old}).ok());
    auto back = std::async(std::launch::async, [&] { return device().Recover(); });
    EXPECT_NE(back.wait_for(std::chrono::milliseconds(20)), std::future_status::ready);
    (void)old.memory->Health();  // answers
    EXPECT_FALSE(device().Health().ok());
    fake_.Set(knob, 0);
    dropped.get();
    EXPECT_EQ(back.get(), absl::OkStatus());
    EXPECT_FALSE(old.memory->Health().ok());
    EXPECT_EQ(Run({NextCommand(program)}, {Buffer(1)}), absl::OkStatus());
    EXPECT_EQ(fake_.Count(calls), before + 1);
    EXPECT_EQ(Unasked(fake_.Problems()), "");
  }
};

TEST_F(HeldRelease, OfPinnedMemory) {
  Open();
  auto pinned = device().AllocOf(MemoryKind::kPinnedHost, 4096);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  ExpectOthersGoOn(*std::exchange(pinned, absl::UnknownError("")), "hold_unregister",
                   "unregister_calls");
}

TEST_F(HeldRelease, OfMemoryOfAnotherProcess) {
  const ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 8);
  Open();
  auto memory = device().ImportHandle(foreign.handle(), 8);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ExpectOthersGoOn(*std::exchange(memory, absl::UnknownError("")), "hold_ipc_close", "ipc_closes");
}

// Within the limit there is room, but the library has it only when the other thread's free ends.
TEST_F(LibraryMemory, AnAllocationWaitsForMemoryThatGoesBack) {
  fake_.Set("memory", 10 << 20);
  CudaOptions options = FakeOptions();
  options.memory_limit = 10 << 20;
  Open(options);
  Buffer(8 << 20);
  fake_.Set("hold_free", 1);
  const auto alloc = [&](int64_t bytes) {
    return std::async(std::launch::async, [this, bytes] { return device().Alloc(bytes); });
  };
  auto first = alloc(6 << 20);
  while (fake_.Count("frees") == 0) std::this_thread::yield();
  auto second = alloc(3 << 20);
  while (fake_.Count("refused_allocations") == 0) std::this_thread::yield();
  EXPECT_NE(second.wait_for(std::chrono::milliseconds(20)), std::future_status::ready);
  fake_.Set("hold_free", 0);
  const auto a = first.get(), b = second.get();
  EXPECT_TRUE(a.ok()) << a.status();
  EXPECT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(device().memory_footprint(), 9 << 20);
  EXPECT_EQ(fake_.Count("live_bytes"), 9 << 20);
}

// The driver has a stack for each thread that the GPU runs at once: as many bytes as a program
// needs that needs the most.
TEST_F(LibraryMemory, StacksOfThreadsCount) {
  fake_.Set("multiprocessors", 2);
  Open();
  constexpr int64_t kThreads = 2 * 2048;
  const auto load = [&](int bytes) {
    ProgramImage image = NextImage();
    const std::string begin = "{\n";
    image.binary.insert(image.binary.find(begin) + begin.size(),
                        StrCat("  .local .align 8 .b8 stack[", bytes, "];\n"));
    return device().Load(image);
  };
  // Each text is as long but for its last letters.
  const int64_t code =
      CodeBytes({.name = "", .binary = std::string(kNextPtx) + std::string(40, ' ')});
  EXPECT_EQ(device().memory_used(), 0);
  const auto first = load(1024), second = load(512);
  EXPECT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ(second.status(), absl::OkStatus());
  EXPECT_EQ(device().memory_used(), 1024 * kThreads + 2 * code);
  const auto third = load(2048);
  EXPECT_EQ(third.status(), absl::OkStatus());
  EXPECT_EQ(device().memory_used(), 2048 * kThreads + 3 * code);
  EXPECT_EQ(device().memory_footprint(), 2048 * kThreads + 3 * code);
  const absl::Status most = load(16384).status();
  EXPECT_EQ(most.code(), absl::StatusCode::kResourceExhausted) << most;
  EXPECT_THAT(std::string(most.message()),
              AllOf(HasSubstr("16384 bytes of stack for each of 4096 threads"),
                    HasSubstr(StrCat(device().memory_limit()))));
  // Its code goes when a thread has unloaded it.
  while (device().memory_used() > 2048 * kThreads + 3 * code) std::this_thread::yield();
  EXPECT_EQ(device().memory_used(), 2048 * kThreads + 3 * code);
}

// Of each module, until the driver has unloaded it.
TEST_F(LibraryMemory, CodeCounts) {
  CudaOptions options = FakeOptions();
  options.memory_limit = 64 << 10;
  Open(options);
  const int64_t code = CodeBytes(NextImage());
  ASSERT_GT(code, 0);
  ProgramImage broken = NextImage();
  broken.binary = "no PTX";
  EXPECT_FALSE(device().Load(broken).ok());
  EXPECT_EQ(device().memory_used(), 0) << "what is not loaded takes none";
  std::vector<std::shared_ptr<LoadedProgram>> programs;
  for (int i = 1; i <= 3; ++i) {
    programs.push_back(Next());
    EXPECT_EQ(device().memory_used(), i * code);
    EXPECT_EQ(device().memory_footprint(), i * code);
  }
  fake_.Set("hold_unload", 1);
  programs.pop_back();
  while (fake_.Count("unloads") == 0) std::this_thread::yield();
  EXPECT_EQ(device().memory_used(), 3 * code) << "it is there until it is unloaded";
  fake_.Set("hold_unload", 0);
  while (device().memory_used() > 2 * code) std::this_thread::yield();
  EXPECT_EQ(device().memory_footprint(), 2 * code);
  EXPECT_EQ(fake_.Count("live_modules"), 2);
  // Where the limit is reached.
  const BufferView rest = Buffer(device().memory_limit() - device().memory_used());
  const absl::Status full = device().Load(NextImage()).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr(StrCat("CUDA:0: no room for a program with ", code,
                               " bytes of code: 65536 of 65536 bytes are in use")));
  EXPECT_EQ(fake_.Count("modules_loaded"), 3);
  EXPECT_EQ(device().memory_used(), 65536);
}

// Nor does it when its program outlives its device.
TEST_F(LibraryMemory, CodeOfALostGenerationCountsNoMore) {
  Open();
  const auto program = Next();
  const int64_t code = device().memory_used();
  EXPECT_EQ(code, CodeBytes(NextImage()));
  const BufferView buffer = Buffer(8);
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(Run({NextCommand(program)}, {buffer}).ok());
  ASSERT_EQ(device().Recover(), absl::OkStatus());
  EXPECT_EQ(device().memory_used(), 0);
  EXPECT_EQ(fake_.Count("live_modules"), 0);
  const BufferView again = Buffer(256);
  EXPECT_EQ(Run({NextCommand(program)}, {again}), absl::OkStatus());
  EXPECT_EQ(device().memory_used(), code + 256) << "it is loaded again where it is used";
  devices_.clear();
}

// The driver has more to take for a module than its image tells.
TEST_F(LibraryMemory, WhatIsKeptGoesBackWhereTheDriverHasNoMemoryForCode) {
  fake_.Set("memory", 16 << 20);
  fake_.Set("module_bytes", 4 << 20);
  CudaOptions options = FakeOptions();
  options.memory_limit = 16 << 20;
  Open(options);
  Buffer(14 << 20);
  EXPECT_EQ(device().memory_footprint(), 14 << 20);
  const auto program = Next();
  EXPECT_NE(program, nullptr);
  EXPECT_EQ(device().memory_footprint(), CodeBytes(NextImage()));
  const BufferView buffer = Buffer(10 << 20);
  const absl::Status more = device().Load(NextImage()).status();
  EXPECT_EQ(more.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.message()),
              AllOf(HasSubstr("cuModuleLoadDataEx"), HasSubstr("program next"),
                    HasSubstr(StrCat("of ", 16 << 20, " only ")), HasSubstr("others have taken")));
  EXPECT_EQ(fake_.Count("live_modules"), 1);
}

}  // namespace
}  // namespace telegrad
