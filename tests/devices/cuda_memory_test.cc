// Memory of a GPU whose driver has no virtual memory management, on the fake driver: what is kept
// for later, the limit, and what others do meanwhile.
#include <chrono>
#include <future>
#include <thread>

#include "engine/base/status.h"
#include "tests/devices/cuda_fixture.h"

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
    return device().Load(image).status();
  };
  EXPECT_EQ(device().memory_used(), 0);
  EXPECT_EQ(load(1024), absl::OkStatus());
  EXPECT_EQ(device().memory_used(), 1024 * kThreads);
  EXPECT_EQ(load(512), absl::OkStatus());
  EXPECT_EQ(device().memory_used(), 1024 * kThreads);
  EXPECT_EQ(load(2048), absl::OkStatus());
  EXPECT_EQ(device().memory_used(), 2048 * kThreads);
  EXPECT_EQ(device().memory_footprint(), 2048 * kThreads);
  const absl::Status most = load(16384);
  EXPECT_EQ(most.code(), absl::StatusCode::kResourceExhausted) << most;
  EXPECT_THAT(std::string(most.message()),
              AllOf(HasSubstr("16384 bytes of stack for each of 4096 threads"),
                    HasSubstr(StrCat(device().memory_limit()))));
  EXPECT_EQ(device().memory_used(), 2048 * kThreads);
}

}  // namespace
}  // namespace telegrad
