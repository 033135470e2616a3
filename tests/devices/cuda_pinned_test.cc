// Memory of the host that a GPU lends for transfers, on the fake driver: how often it is locked and
// unlocked, and what is copied through chunks of the queue's instead.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "devices/api/locks_host_memory.h"
#include "engine/base/status.h"
#include "tests/devices/cuda_fixture.h"

namespace telegrad {
namespace {

constexpr int64_t kKilo = 1 << 10;
constexpr int64_t kMega = 1 << 20;

class CudaPinned : public Cuda {
 protected:
  void OpenWith(int64_t pinned) {
    fake_.Set("devices", 1);
    CudaOptions options = FakeOptions();
    options.pinned_memory = pinned;
    Open(options);
    held_ = fake_.Count("live_host_allocations");
  }
  std::shared_ptr<Memory> Lend(int64_t bytes) { return device().LendPinned(bytes); }
  int64_t locked() { return fake_.Count("host_registrations"); }
  int64_t unlocked() { return fake_.Count("host_unregistrations"); }
  // Of memory that the driver allocates for itself to copy through.
  int64_t chunks() {
    return fake_.Count("live_host_allocations") - held_ - (locked() - unlocked());
  }
  // In one copy or several; how many.
  int64_t Move(const BufferView& to, const BufferView& from) {
    const int64_t before = fake_.Count("given_copies");
    EXPECT_EQ(Copy(device(), to, from)->Wait(), absl::OkStatus());
    return fake_.Count("given_copies") - before;
  }

 private:
  int64_t held_ = 0;
};

// One transfer after the other, each way, of more bytes than a chunk.
TEST_F(CudaPinned, IsLockedOnceForManyTransfers) {
  constexpr int64_t kBytes = 9 * kMega;
  OpenWith(64 * kMega);
  const BufferView buffer = Buffer(kBytes);
  for (int round = 0; round < 5; ++round) {
    const auto lent = Lend(kBytes);
    ASSERT_NE(lent, nullptr);
    EXPECT_EQ(lent->kind(), MemoryKind::kPinnedHost);
    ASSERT_GE(lent->size(), kBytes);
    auto* const bytes = static_cast<char*>(lent->host());
    for (int64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 7 + i / 4093 + round);
    const std::string expected(bytes, kBytes);
    EXPECT_EQ(Move(buffer, {lent, 0, kBytes}), 1);
    std::fill_n(bytes, kBytes, '?');
    EXPECT_EQ(Move({lent, 0, kBytes}, buffer), 1);
    EXPECT_TRUE(std::string(bytes, kBytes) == expected);
  }
  EXPECT_EQ(locked(), 1);
  EXPECT_EQ(unlocked(), 0);
  EXPECT_EQ(chunks(), 0);
  // Other memory of the host goes through chunks.
  EXPECT_EQ(Move(buffer, HostBuffer(*host_, std::string(kBytes, 'x'))), 3);
  EXPECT_GT(chunks(), 0);
  devices_.clear();
  EXPECT_EQ(unlocked(), 1);
  EXPECT_EQ(fake_.Count("live_host_allocations"), 0);
}

// It is the transfer's until that has ended, whoever else has dropped it.
TEST_F(CudaPinned, IsNotLentAgainWhileTheGpuReadsIt) {
  OpenWith(64 * kMega);
  const BufferView buffer = Buffer(kMega);
  fake_.Set("hold", 1);
  auto lent = Lend(kMega);
  void* const at = lent->host();
  const auto copied = Copy(device(), buffer, {lent, 0, kMega});
  lent = nullptr;
  const auto other = Lend(kMega);
  EXPECT_NE(other->host(), at);
  fake_.Set("hold", 0);
  EXPECT_EQ(copied->Wait(), absl::OkStatus());
  EXPECT_EQ(Lend(kMega)->host(), at);
  EXPECT_EQ(locked(), 2);
}

TEST_F(CudaPinned, IsLimited) {
  OpenWith(kMega);
  EXPECT_EQ(Lend(kMega / 4 + 1), nullptr) << "one transfer does not take all of it";
  EXPECT_EQ(Lend(0), nullptr);
  EXPECT_EQ(Lend(16 * kKilo - 1), nullptr) << "it would take as much as a larger one";
  std::vector<std::shared_ptr<Memory>> lent;
  for (int i = 0; i < 4; ++i) {
    lent.push_back(Lend(kMega / 4));
    ASSERT_NE(lent.back(), nullptr);
  }
  EXPECT_EQ(Lend(16 * kKilo), nullptr);
  EXPECT_EQ(locked(), 4);
  // What is kept serves what needs at least half of it, and makes room for what does not.
  lent.pop_back();
  EXPECT_NE(Lend(130 * kKilo), nullptr);
  EXPECT_EQ(locked(), 4);
  const auto small = Lend(16 * kKilo);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->size(), 64 * kKilo);
  EXPECT_EQ(locked(), 5);
  EXPECT_EQ(unlocked(), 1);
  EXPECT_EQ(Lend(kMega / 4), nullptr);
  EXPECT_NE(Lend(192 * kKilo), nullptr);
  devices_.clear();
  OpenWith(0);
  EXPECT_EQ(Lend(64 * kKilo), nullptr);
}

// What it has locked goes on serving.
TEST_F(CudaPinned, WhereTheDriverLocksNoMoreItIsNotAskedForMore) {
  OpenWith(64 * kMega);
  auto lent = Lend(kMega);
  fake_.Set("register_error", 2);  // CUDA_ERROR_OUT_OF_MEMORY
  EXPECT_EQ(Lend(kMega), nullptr);
  fake_.Set("register_error", 0);
  EXPECT_EQ(Lend(8 * kMega), nullptr);
  EXPECT_EQ(locked(), 1);
  lent = nullptr;
  EXPECT_NE(Lend(kMega / 4), nullptr) << "in its place";
  EXPECT_EQ(unlocked(), 1);
  EXPECT_EQ(device().Health(), absl::OkStatus());
  const BufferView buffer = Buffer(8);
  Fill(buffer, "as ever.");
  EXPECT_EQ(Read(buffer), "as ever.");
}

// What it refused it may lock later: the first time it is asked when so many have got nothing, and
// after each further refusal when twice as many have.
TEST_F(CudaPinned, WhereTheDriverHasLockedNoMoreItIsAskedAgainLater) {
  OpenWith(64 * kMega);
  const auto first = Lend(kMega);
  fake_.Set("register_error", 2);  // CUDA_ERROR_OUT_OF_MEMORY
  EXPECT_EQ(Lend(kMega), nullptr);
  // How many get nothing until the driver is asked and locks it.
  const auto misses = [&](int64_t most) {
    int64_t n = 0;
    while (n < most && Lend(kMega) == nullptr) ++n;
    return n;
  };
  EXPECT_EQ(misses(64), 64) << "the last of them asked, and was refused";
  fake_.Set("register_error", 0);
  EXPECT_EQ(misses(1000), 127);
  EXPECT_EQ(locked(), 2);
  // From then on there is no limit but that of the options, until the next refusal.
  const auto kept = Lend(kMega), more = Lend(2 * kMega), most = Lend(16 * kMega);
  EXPECT_NE(kept, nullptr);
  EXPECT_NE(more, nullptr);
  EXPECT_NE(most, nullptr);
  EXPECT_EQ(locked(), 4);
  fake_.Set("register_error", 2);
  EXPECT_EQ(Lend(kMega), nullptr);
  fake_.Set("register_error", 0);
  EXPECT_EQ(misses(1000), 63);
}

// With the generation, whether it is kept or in use; the next has its own.
TEST_F(CudaPinned, IsUnlockedWhenTheGpuIsLost) {
  OpenWith(64 * kMega);
  const auto program = Next();
  auto used = Lend(kMega);
  Lend(2 * kMega);
  EXPECT_EQ(locked(), 2);
  std::memcpy(used->host(), "kept", 4);
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(Run({NextCommand(program)}, {Buffer(8)}).ok());
  EXPECT_EQ(Lend(kMega), nullptr);
  ASSERT_EQ(device().Recover(), absl::OkStatus());
  const BufferView buffer = Buffer(4);
  EXPECT_EQ(Move(buffer, {used, 0, 4}), 1);
  EXPECT_EQ(Read(buffer), "kept");
  const auto next = Lend(kMega);
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next->host(), used->host());
  EXPECT_EQ(locked(), 3);
  used = nullptr;
  EXPECT_EQ(Move(buffer, {next, 0, 4}), 1);
}

bool IsThere(void* at, size_t bytes) {
  std::vector<unsigned char> resident(bytes / 4096);
  return mincore(at, bytes, resident.data()) == 0;
}

// A driver that has failed unlocks nothing, but its reset does: then the pages go.
TEST_F(CudaPinned, GoesBackToTheSystemOnceTheGpuIsReset) {
  constexpr int64_t kBytes = 40 * kMega;  // which the allocator gives back when they are freed
  OpenWith(4 * kBytes);
  const auto program = Next();
  void* const kept = Lend(kBytes)->host();
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(Run({NextCommand(program)}, {Buffer(8)}).ok());
  EXPECT_TRUE(IsThere(kept, kBytes));
  fake_.Set("unregister_error", 700);  // CUDA_ERROR_ILLEGAL_ADDRESS, as all calls say by now
  ASSERT_EQ(device().Recover(), absl::OkStatus());
  EXPECT_FALSE(IsThere(kept, kBytes));
}

// Memory of the process, such as a mapping, where it is.
TEST_F(CudaPinned, PagesAreLockedWhereTheyAre) {
  constexpr int64_t kBytes = 16 * kKilo;
  OpenWith(0);
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  bool is_there = true;
  std::shared_ptr<void> pages(at, [&](void* mapped) {
    munmap(mapped, kBytes);
    is_there = false;
  });
  auto* const locks = dynamic_cast<LocksHostMemory*>(&device());
  ASSERT_NE(locks, nullptr);
  EXPECT_EQ(locks->LockHost(pages, kBytes - 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(locks->LockHost({pages, static_cast<char*>(at) + 8}, 4096).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(locked(), 0);
  auto locked_at = locks->LockHost(std::move(pages), kBytes);
  ASSERT_TRUE(locked_at.ok()) << locked_at.status();
  EXPECT_EQ((*locked_at)->host(), at);
  EXPECT_EQ((*locked_at)->kind(), MemoryKind::kPinnedHost);
  std::memcpy(at, "absolute", 8);
  const BufferView buffer = Buffer(8);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Move(buffer, {*locked_at, 0, 8}), 1);
    EXPECT_EQ(Move({*locked_at, 8, 8}, buffer), 1);
  }
  EXPECT_EQ(std::string(static_cast<char*>(at) + 8, 8), "absolute");
  EXPECT_EQ(locked(), 1);
  EXPECT_EQ(chunks(), 0);
  EXPECT_TRUE(is_there);
  *locked_at = nullptr;
  EXPECT_EQ(unlocked(), 1);
  EXPECT_FALSE(is_there);
  fake_.Set("register_error", 2);
  EXPECT_EQ(locks->LockHost(std::shared_ptr<void>(std::aligned_alloc(4096, 4096), &std::free), 4096)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(CudaPinned, MayOutliveTheDevice) {
  OpenWith(64 * kMega);
  auto lent = Lend(kMega);
  devices_.clear();
  std::memset(lent->host(), 1, kMega);
  lent = nullptr;
  EXPECT_EQ(unlocked(), 1);
  EXPECT_EQ(fake_.Count("live_host_allocations"), 0);
  EXPECT_EQ(fake_.Problems(), "");
}

}  // namespace
}  // namespace telegrad
