// Memory of a GPU whose driver has virtual memory management, on the fake driver: when the driver
// is called, what is moved and what goes back, and what others do meanwhile.
#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "engine/base/status.h"
#include "tests/devices/cuda_fixture.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kChunk = 2 * kMiB;

class VirtualMemory : public Cuda {
 protected:
  // One GPU: between two, a pattern takes memory of the library's.
  void SetUp() override {
    fake_.Set("virtual_memory", 1);
    fake_.Set("devices", 1);
  }
  void OpenWith(int64_t memory_limit) {
    CudaOptions options = FakeOptions();
    options.memory_limit = memory_limit;
    Open(options);
  }
  void TearDown() override {
    EXPECT_THAT(fake_.Problems(), Not(HasSubstr("cuMem")));
    if (fake_.Get("devices") == 1) EXPECT_EQ(fake_.Count("frees"), 0);
  }
  std::future<absl::StatusOr<std::shared_ptr<Memory>>> AllocBeside(
      int64_t bytes, MemoryKind kind = MemoryKind::kDevice) {
    return std::async(std::launch::async,
                      [this, bytes, kind] { return device().AllocOf(kind, bytes); });
  }
  // Buffers of a chunk each, one behind the other, with their numbers as contents.
  std::vector<BufferView> Chunks(int count) {
    std::vector<BufferView> out;
    for (int i = 0; i < count; ++i) {
      out.push_back(Buffer(kChunk));
      Fill(out.back(), std::string(kChunk, static_cast<char>('a' + i)));
    }
    return out;
  }
  static ProgramImage ImageWithStack(int bytes) {
    ProgramImage image = NextImage();
    const std::string begin = "{\n";
    image.binary.insert(image.binary.find(begin) + begin.size(),
                        StrCat("  .local .align 8 .b8 stack[", bytes, "];\n"));
    return image;
  }
};

// Whatever the sizes, and while the GPU does nothing that it was given.
TEST_F(VirtualMemory, AllocatingAndFreeingMapsNothingOnceThereAreChunks) {
  Open();
  {
    const BufferView large = Buffer(7 * kMiB), small = Buffer(1000);
  }
  EXPECT_EQ(device().memory_used(), 0);
  EXPECT_EQ(device().memory_footprint(), 10 * kMiB);
  const int64_t maps = fake_.Count("maps");
  EXPECT_EQ(maps, 5);
  fake_.Set("hold", 1);
  for (int64_t i = 1; i <= 20; ++i) {
    const BufferView a = Buffer(100'000 * i), b = Buffer(i), c = Buffer(3 * kMiB + i);
    EXPECT_EQ(device().memory_used() % 256, 0);
  }
  fake_.Set("hold", 0);
  EXPECT_EQ(fake_.Count("maps"), maps);
  EXPECT_EQ(fake_.Count("unmaps"), 0);
  EXPECT_EQ(fake_.Count("live_bytes"), device().memory_footprint());
  const BufferView again = Buffer(7 * kMiB);
  EXPECT_EQ(Read(again), std::string(7 * kMiB, '\0'));
}

// Though no two chunks side by side are free and the limit is reached, nothing goes back to the
// driver, and the rest of the GPU's work goes on.
TEST_F(VirtualMemory, ScatteredChunksServeALargeBuffer) {
  OpenWith(8 * kChunk + CodeBytes(NextImage()));
  std::vector<BufferView> buffers = Chunks(8);
  for (const int i : {0, 2, 4, 6}) buffers[static_cast<size_t>(i)] = {};
  fake_.Set("hang_launch", 1);
  const auto commands = device().Encode({NextCommand(Next())});
  const auto stuck = device().queue().Submit(*commands, {buffers[1]}, {});
  const auto large = device().Alloc(4 * kChunk);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_FALSE(stuck->timeline->value() >= stuck->value);
  fake_.Release();
  EXPECT_EQ(stuck->Wait(), absl::OkStatus());
  EXPECT_EQ(fake_.Count("memories_created"), 8);
  EXPECT_EQ(fake_.Count("unmaps"), 4);
  EXPECT_EQ(fake_.Count("live_bytes"), 8 * kChunk);
  EXPECT_EQ(device().memory_footprint(), 8 * kChunk + CodeBytes(NextImage()));
  EXPECT_EQ(Read(Whole(*large)), std::string(4 * kChunk, '\0'));
  for (const size_t i : {3, 5, 7}) {
    EXPECT_EQ(Read(buffers[i]), std::string(kChunk, static_cast<char>('a' + i)));
  }
  EXPECT_EQ(device().Alloc(1).status().code(), absl::StatusCode::kResourceExhausted);
}

// Of a buffer that was freed unused, the GPU may still have to zero the memory.
TEST_F(VirtualMemory, ChunksMoveWhenTheyHaveBeenZeroed) {
  OpenWith(8 * kChunk);
  fake_.Set("hold", 1);
  std::vector<BufferView> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(Buffer(kChunk));
  for (const int i : {0, 2, 4, 6}) buffers[static_cast<size_t>(i)] = {};
  const BufferView large = Buffer(4 * kChunk);
  EXPECT_EQ(fake_.Count("unmaps"), 4);
  fake_.Set("hold", 0);
  EXPECT_EQ(Read(large), std::string(4 * kChunk, '\0'));
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

// Memory that others have taken of the GPU is made up for by empty chunks.
TEST_F(VirtualMemory, WhereTheDriverHasNoneEmptyChunksAreMoved) {
  OpenWith(8 * kChunk);
  fake_.Set("memory", 4 * kChunk);
  std::vector<BufferView> buffers = Chunks(4);
  buffers[0] = buffers[2] = {};
  EXPECT_TRUE(device().Alloc(2 * kChunk).ok());
  EXPECT_EQ(fake_.Count("memories_created"), 4);
  const auto more = device().Alloc(3 * kChunk);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()),
              AllOf(HasSubstr("CUDA:0"), HasSubstr("cuMemCreate"), HasSubstr("others have taken")));
  // What was empty went back in the attempt.
  EXPECT_EQ(device().memory_footprint(), 2 * kChunk);
  EXPECT_EQ(device().memory_used(), 2 * kChunk);
  EXPECT_EQ(Read(buffers[3]), std::string(kChunk, 'd'));
  EXPECT_TRUE(device().Alloc(2 * kChunk).ok());
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

// Unmapping may wait for everything that the GPU runs. Only the thread that needs the room waits
// with it.
TEST_F(VirtualMemory, OthersAllocateWhileChunksAreUnmapped) {
  OpenWith(8 * kChunk);
  std::vector<BufferView> buffers = Chunks(6);
  buffers[0] = buffers[2] = buffers[4] = {};
  fake_.Set("hold_unmap", 1);
  auto large = AllocBeside(4 * kChunk);
  while (fake_.Count("unmaps") == 0) std::this_thread::yield();
  const BufferView small = Buffer(kMiB);
  Fill(small, "new");
  EXPECT_EQ(Read({small.memory, 0, 4}), std::string("new\0", 4));
  EXPECT_EQ(device().memory_used(), 7 * kChunk + kMiB);
  // The limit counts what the other thread is about to have.
  EXPECT_EQ(device().Alloc(kChunk).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(large.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  fake_.Set("hold_unmap", 0);
  const auto memory = large.get();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(Read(Whole(*memory)), std::string(4 * kChunk, '\0'));
  EXPECT_EQ(device().memory_footprint(), fake_.Count("live_bytes"));
}

// An allocation that gets addresses of chunks that another thread is giving back maps them anew.
TEST_F(VirtualMemory, AnAllocationWaitsForChunksThatGoBack) {
  OpenWith(8 * kChunk);
  fake_.Set("memory", 4 * kChunk);
  Buffer(4 * kChunk);
  fake_.Set("hold_unmap", 1);
  auto exported = AllocBeside(kChunk, MemoryKind::kExported);
  while (fake_.Count("unmaps") == 0) std::this_thread::yield();
  auto second = AllocBeside(kChunk);
  EXPECT_NE(second.wait_for(std::chrono::milliseconds(20)), std::future_status::ready);
  fake_.Set("hold_unmap", 0);
  const auto a = exported.get(), b = second.get();
  EXPECT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(device().memory_footprint(), 2 * kChunk);
  EXPECT_EQ(fake_.Count("live_bytes"), 2 * kChunk);
  EXPECT_EQ(Read(Whole(*b)), std::string(kChunk, '\0'));
}

TEST_F(VirtualMemory, EmptyChunksGoBackForTheStacksOfThreads) {
  fake_.Set("multiprocessors", 2);
  const ProgramImage image = ImageWithStack(2048);
  OpenWith(8 * kChunk + CodeBytes(image));
  constexpr int64_t kThreads = 2 * 2048;
  const BufferView kept = Buffer(kChunk);
  Buffer(6 * kChunk);
  EXPECT_EQ(device().memory_footprint(), 7 * kChunk);
  const auto program = device().Load(image);  // 8 MiB
  EXPECT_EQ(program.status(), absl::OkStatus());
  EXPECT_EQ(device().memory_used(), kChunk + 2048 * kThreads + CodeBytes(image));
  EXPECT_EQ(device().memory_footprint(), 8 * kChunk + CodeBytes(image));
  EXPECT_EQ(fake_.Count("live_bytes"), 4 * kChunk);
  EXPECT_EQ(device().Load(ImageWithStack(4096)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Code takes the room of a chunk, of which the rest is nobody's; and where the driver itself has no
// memory for it, all that are empty go back.
TEST_F(VirtualMemory, EmptyChunksGoBackForCode) {
  OpenWith(8 * kChunk);
  const BufferView kept = Buffer(kChunk);
  Buffer(7 * kChunk);
  EXPECT_EQ(device().memory_footprint(), 8 * kChunk);
  const auto program = device().Load(NextImage());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(device().memory_footprint(), 7 * kChunk + CodeBytes(NextImage()));
  EXPECT_EQ(fake_.Count("live_bytes"), 7 * kChunk);
  fake_.Set("memory", 8 * kChunk);
  fake_.Set("module_bytes", 4 * kChunk);
  const auto more = device().Load(NextImage());
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(fake_.Count("live_bytes"), kChunk);
  EXPECT_EQ(fake_.Count("live_modules"), 2);
}

TEST_F(VirtualMemory, PeersHaveAccessWhereTheyReachIt) {
  for (const bool direct : {true, false}) {
    fake_.Set("peer_access", direct ? 1 : 0);
    fake_.Set("devices", 2);
    devices_.clear();
    Open();
    const BufferView a = Buffer(3 * kChunk, 0), b = Buffer(3 * kChunk, 1);
    EXPECT_EQ(fake_.Count("live_mappings"), 6);
    EXPECT_EQ(fake_.Count("live_peer_access"), direct ? 6 : 0);
    const std::string bytes = std::string(kChunk, 'x') + std::string(2 * kChunk, 'y');
    Fill(a, bytes);
    EXPECT_EQ(Copy(device(1), b, a)->Wait(), absl::OkStatus());
    EXPECT_EQ(Read(b, 1), bytes);
  }
}

// A driver may say that it maps memory and refuse to.
TEST_F(VirtualMemory, WhatTheDriverRefusesToMapTheLibraryAllocates) {
  fake_.Set("create_error", 801);  // CUDA_ERROR_NOT_SUPPORTED
  Open();
  {
    const BufferView buffer = Buffer(1000);
    Fill(buffer, "kept");
    EXPECT_EQ(Read({buffer.memory, 0, 4}), "kept");
    EXPECT_EQ(device().memory_footprint(), 1024);
  }
  const BufferView again = Buffer(1000);
  EXPECT_EQ(fake_.Count("allocations"), 1);
  EXPECT_EQ(fake_.Count("maps"), 0);
  EXPECT_EQ(fake_.Count("live_bytes"), 1024);
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

// It goes with the generation, although buffers of that are still there, and these take nothing
// from the next when they go.
TEST_F(VirtualMemory, ALostGenerationHoldsNothing) {
  fake_.Set("devices", 2);
  Open();
  const auto program = Next();
  BufferView old = Buffer(3 * kChunk);
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(Run({NextCommand(program)}, {old}).ok());
  EXPECT_EQ(device().Recover(), absl::OkStatus());
  EXPECT_EQ(fake_.Count("live_mappings"), 0);
  EXPECT_EQ(fake_.Count("live_bytes"), 0);
  EXPECT_EQ(fake_.Count("live_reservations"), 2);
  const BufferView next = Buffer(kChunk);
  Fill(next, "next");
  old = {};
  EXPECT_EQ(Read({next.memory, 0, 4}), "next");
  EXPECT_EQ(fake_.Count("live_mappings"), 1);
}

// Once the GPU is idle, which it is some time after the last work has ended.
int64_t GivenBack(IdleMemory& memory) {
  while (true) {
    const auto bytes = memory.GiveBack();
    if (!absl::IsFailedPrecondition(bytes.status())) {
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      return bytes.value_or(-1);
    }
    std::this_thread::yield();
  }
}
int64_t GivenBack(Device& device) {
  const auto memory = device.idle_memory();
  EXPECT_NE(memory, nullptr);
  return memory == nullptr ? -1 : GivenBack(*memory);
}
absl::StatusCode AtWork(Device& device) { return device.idle_memory()->GiveBack().status().code(); }

TEST_F(VirtualMemory, ChunksThatNobodyHasUsedGoBack) {
  OpenWith(30 * kChunk);
  std::vector<BufferView> buffers = Chunks(30);
  BufferView kept = buffers[1];
  buffers.clear();
  EXPECT_EQ(GivenBack(device()), 0) << "they have just been freed";
  EXPECT_EQ(fake_.Count("unmaps"), 0);
  EXPECT_EQ(device().memory_footprint(), 30 * kChunk);
  // What is used between two calls stays.
  Buffer(kChunk);
  EXPECT_EQ(GivenBack(device()), 28 * kChunk);
  EXPECT_EQ(fake_.Count("unmaps"), 28);
  EXPECT_EQ(fake_.Count("live_bytes"), 2 * kChunk);
  EXPECT_EQ(device().memory_footprint(), 2 * kChunk);
  EXPECT_EQ(device().memory_used(), kChunk);
  EXPECT_EQ(GivenBack(device()), kChunk);
  EXPECT_EQ(GivenBack(device()), 0);
  EXPECT_EQ(fake_.Count("live_bytes"), kChunk);
  EXPECT_EQ(Read(kept), std::string(kChunk, 'b'));
  // What comes then is mapped anew.
  const BufferView fresh = Buffer(20 * kChunk);
  EXPECT_EQ(Read(fresh), std::string(20 * kChunk, '\0'));
  kept = {};
  EXPECT_EQ(device().memory_footprint(), 21 * kChunk);
  EXPECT_EQ(fake_.Count("live_bytes"), 21 * kChunk);
}

// Unmapping would wait for what the GPU runs.
TEST_F(VirtualMemory, NothingGoesBackWhileTheGpuIsAtWork) {
  OpenWith(8 * kChunk);
  std::vector<BufferView> buffers = Chunks(3);
  buffers[1] = {};
  EXPECT_EQ(GivenBack(device()), 0);
  fake_.Set("hang_launch", 1);
  const auto commands = device().Encode({NextCommand(Next())});
  const auto stuck = device().queue().Submit(*commands, {buffers[0]}, {});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(AtWork(device()), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(fake_.Count("unmaps"), 0);
  EXPECT_FALSE(stuck->timeline->value() >= stuck->value);
  buffers[2] = {};  // since it was last asked in vain
  fake_.Release();
  EXPECT_EQ(stuck->Wait(), absl::OkStatus());
  EXPECT_EQ(GivenBack(device()), kChunk);
  EXPECT_EQ(GivenBack(device()), kChunk);
}

// Nor is the zeroing waited for of a buffer that was freed unused.
TEST_F(VirtualMemory, NothingGoesBackBeforeItHasBeenZeroed) {
  OpenWith(8 * kChunk);
  fake_.Set("hold", 1);
  Buffer(kChunk);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(AtWork(device()), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(fake_.Count("memsets"), 0);
  fake_.Set("hold", 0);
  Read(Buffer(kChunk));
  EXPECT_EQ(GivenBack(device()), 0);
  EXPECT_EQ(GivenBack(device()), kChunk);
}

// Whoever needs the addresses waits, all others go on.
TEST_F(VirtualMemory, OthersGoOnWhileIdleChunksGoBack) {
  OpenWith(8 * kChunk);
  std::vector<BufferView> buffers = Chunks(4);
  buffers[3] = {};
  EXPECT_EQ(GivenBack(device()), 0);
  buffers[0] = {};
  fake_.Set("hold_unmap", 1);
  auto given = std::async(std::launch::async, [&] { return GivenBack(device()); });
  while (fake_.Count("unmaps") == 0) std::this_thread::yield();
  const BufferView small = Buffer(kMiB);
  Fill(small, "new");
  EXPECT_EQ(Read({small.memory, 0, 4}), std::string("new\0", 4));
  auto large = AllocBeside(6 * kChunk - kMiB);
  EXPECT_NE(large.wait_for(std::chrono::milliseconds(20)), std::future_status::ready);
  EXPECT_NE(given.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  fake_.Set("hold_unmap", 0);
  EXPECT_EQ(given.get(), kChunk);
  const auto memory = large.get();
  EXPECT_EQ(device().Health(), absl::OkStatus());
  EXPECT_EQ(fake_.Count("live_bytes"), device().memory_footprint());
}

TEST_F(VirtualMemory, OfALostGpuNothingGoesBack) {
  OpenWith(8 * kChunk);
  const auto program = Next();
  Buffer(3 * kChunk);
  const BufferView buffer = Buffer(kChunk);
  const auto memory = device().idle_memory();
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(GivenBack(*memory), 0);
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(Run({NextCommand(program)}, {buffer}).ok());
  EXPECT_EQ(*memory->GiveBack(), 0);
  EXPECT_EQ(device().Recover(), absl::OkStatus());
  // That of a generation goes with it; what is asked of it later is asked of nobody.
  EXPECT_EQ(*memory->GiveBack(), 0);
  EXPECT_NE(device().idle_memory(), memory);
  EXPECT_EQ(fake_.Count("live_bytes"), 0);
  const auto next = device().idle_memory();
  devices_.clear();
  EXPECT_EQ(*next->GiveBack(), 0);
}

// Random sizes on several threads, with hardly more memory than they use: each buffer begins as
// zero and keeps its contents, also where chunks are larger than blocks and change places.
TEST_F(VirtualMemory, RandomTraffic) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  for (const int64_t granularity : {kChunk, 3 * kChunk}) {
    devices_.clear();
    fake_.Set("granularity", granularity);
    OpenWith(12 * kChunk);
    const auto work = [&](uint32_t number) {
      std::mt19937 random(seed + number);
      struct Live {
        BufferView view;
        char mark;
      };
      std::vector<Live> live;
      for (int step = 0; step < 60; ++step) {
        const int64_t size =
            1 + static_cast<int64_t>(random() % (uint64_t{1} << (8 + random() % 15)));
        auto memory = device().Alloc(size);
        if (memory.ok()) {
          const char mark = static_cast<char>(1 + random() % 100);
          const BufferView view = Whole(*memory);
          ASSERT_EQ(Read(view), std::string(static_cast<size_t>(size), '\0'));
          Fill(view, std::string(static_cast<size_t>(size), mark));
          live.push_back({view, mark});
        } else {
          ASSERT_TRUE(absl::IsResourceExhausted(memory.status())) << memory.status();
        }
        if (!live.empty() && (!memory.ok() || random() % 2 == 0)) {
          const size_t i = random() % live.size();
          ASSERT_EQ(Read(live[i].view),
                    std::string(static_cast<size_t>(live[i].view.length), live[i].mark));
          live[i] = live.back();
          live.pop_back();
        }
      }
    };
    std::atomic<bool> over{false};
    std::thread a(work, 1), b(work, 2), c(work, 3);
    std::thread idle([&] {
      while (!over) {
        const auto bytes = device().idle_memory()->GiveBack();
        EXPECT_TRUE(bytes.ok() || absl::IsFailedPrecondition(bytes.status())) << bytes.status();
      }
    });
    a.join();
    b.join();
    c.join();
    over = true;
    idle.join();
    EXPECT_EQ(device().memory_used(), 0);
    EXPECT_EQ(device().memory_footprint(), fake_.Count("live_bytes"));
  }
}

}  // namespace
}  // namespace telegrad
