// The arena of the CPU device: its limit, the reuse of freed memory, huge pages, and random
// allocation and freeing, also by several threads.
#include "devices/cpu/arena.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::shared_ptr<Arena> Make(int64_t limit) {
  auto arena = Arena::Create(limit);
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *arena;
}

bool AllZero(const char* at, int64_t size) {
  return size == 0 || (at[0] == 0 && std::memcmp(at, at + 1, size - 1) == 0);
}

TEST(Arena, LimitNamesBothFiguresAndCanBeFilledExactly) {
  const auto arena = Make(100'000'000);
  auto all = arena->Alloc(100'000'000);
  ASSERT_TRUE(all.ok()) << all.status();
  const auto more = arena->Alloc(1);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), testing::HasSubstr("100000000"));
  arena->Free(*all, 100'000'000);
  EXPECT_EQ(arena->used(), 0);
  EXPECT_EQ(arena->Alloc(INT64_MAX).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Arena, MemoryIsReusedNotTakenAnew) {
  const auto arena = Make(64 * kMiB);
  for (int round = 0; round < 100; ++round) {
    auto a = arena->Alloc(20 * kMiB), b = arena->Alloc(5 * kMiB + 1), c = arena->Alloc(1000);
    ASSERT_TRUE(a.ok() && b.ok() && c.ok());
    arena->Free(*a, 20 * kMiB);
    arena->Free(*c, 1000);
    arena->Free(*b, 5 * kMiB + 1);
  }
  EXPECT_LE(arena->footprint(), 30 * kMiB);
  // What came back in pieces is one stretch again.
  auto all = arena->Alloc(28 * kMiB);
  ASSERT_TRUE(all.ok());
  EXPECT_LE(arena->footprint(), 30 * kMiB);
}

// The system was asked for huge pages: the mapping has the flag "hg" in /proc/self/smaps.
TEST(Arena, AsksForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  const auto arena = Make(64 * kMiB);
  const auto at = reinterpret_cast<uintptr_t>(*arena->Alloc(8 * kMiB));
  std::ifstream maps("/proc/self/smaps");
  bool here = false, huge = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin, end;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= at && at < end;
    if (here && line.starts_with("VmFlags:")) huge = line.find(" hg") != line.npos;
  }
  EXPECT_TRUE(huge);
}

// Random sizes in random order: zeroed, aligned, inside the limit, and never overlapping, which a
// pattern in each allocation shows.
TEST(Arena, RandomTraffic) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto arena = Make(256 * kMiB);
  struct Live {
    char* at;
    int64_t size;
    char mark;
  };
  std::vector<Live> live;
  const auto drop = [&](size_t i) {
    for (int64_t k = 0; k < live[i].size; ++k) ASSERT_EQ(live[i].at[k], live[i].mark);
    arena->Free(live[i].at, live[i].size);
    live[i] = live.back();
    live.pop_back();
  };
  for (int step = 0; step < 3000; ++step) {
    if (!live.empty() && random() % 5 < 2) {
      drop(random() % live.size());
      continue;
    }
    const int64_t size = static_cast<int64_t>(random() % (int64_t{1} << (random() % 22)));
    auto at = arena->Alloc(size);
    if (!at.ok()) {
      ASSERT_FALSE(live.empty());
      drop(random() % live.size());
      continue;
    }
    auto* bytes = static_cast<char*>(*at);
    ASSERT_TRUE(AllZero(bytes, size)) << size;
    ASSERT_EQ(reinterpret_cast<uintptr_t>(bytes) % (size > kMiB ? 2 * kMiB : 64), 0u);
    const char mark = static_cast<char>(1 + random() % 100);
    std::memset(bytes, mark, size);
    live.push_back({bytes, size, mark});
  }
  while (!live.empty()) drop(live.size() - 1);
  EXPECT_EQ(arena->used(), 0);
}

TEST(Arena, ThreadsShareIt) {
  const auto arena = Make(64 * kMiB);
  const auto work = [&](int seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 2000; ++i) {
      const int64_t size = random() % 100'000;
      auto at = arena->Alloc(size);
      ASSERT_TRUE(at.ok());
      std::memset(*at, seed, size);
      arena->Free(*at, size);
    }
  };
  std::thread a(work, 1), b(work, 2);
  a.join();
  b.join();
  EXPECT_EQ(arena->used(), 0);
}

}  // namespace
}  // namespace telegrad
