// The counters of malloc's memory, and that unused pages are returned to the system once when
// the daemon is idle.
#include "server/admin/heap_memory.h"

#include <unistd.h>

#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * getpagesize();
}

// Many blocks of a thread's heap, of which each hundredth stays, so that malloc keeps the others.
class Blocks {
 public:
  Blocks() {
    std::thread([this] {
      std::vector<std::unique_ptr<char[]>> all;
      for (int i = 0; i < kBlocks; ++i) {
        all.emplace_back(new char[kBytes]);
        for (int at = 0; at < kBytes; at += 4096) all.back()[at] = 1;
      }
      for (size_t i = 0; i < all.size(); i += 100) kept_.push_back(std::move(all[i]));
      kept_.push_back(std::move(all.back()));
    }).join();
  }
  static constexpr int kBlocks = 2000, kBytes = 32 << 10;

 private:
  std::vector<std::unique_ptr<char[]>> kept_;
};

TEST(HeapMemoryTest, CountsWhatIsInUseAndWhatIsKept) {
  const HeapMemory before = ReadHeapMemory();
  if (before.used == 0) GTEST_SKIP() << "a sanitizer has its own malloc";
  // Volatile, since a compiler may leave out an allocation that nothing else looks at.
  std::unique_ptr<char[]> block(new char[100'000]);
  char* volatile seen = block.get();
  EXPECT_NE(seen, nullptr);
  EXPECT_GE(ReadHeapMemory().used, before.used + 100'000);
  const Blocks blocks;
  const HeapMemory now = ReadHeapMemory();
  EXPECT_GE(now.free, Blocks::kBlocks * Blocks::kBytes * int64_t{9} / 10);
  EXPECT_LT(now.used, before.used + Blocks::kBlocks * Blocks::kBytes / 10);
}

TEST(IdleTrimTest, GivesPagesBackOnceWhenNothingIsDone) {
  if (ReadHeapMemory().used == 0) GTEST_SKIP() << "a sanitizer has its own malloc";
  const Blocks blocks;
  IdleTrim trim;
  // While there is work, nothing.
  for (int i = 0; i < 3 * IdleTrim::kIdleLooks; ++i) EXPECT_FALSE(trim.Look(i / 2));
  const int64_t work = 100, before = ResidentBytes();
  EXPECT_FALSE(trim.Look(work));
  for (int i = 1; i < IdleTrim::kIdleLooks; ++i) EXPECT_FALSE(trim.Look(work)) << i;
  EXPECT_TRUE(trim.Look(work));
  EXPECT_LT(ResidentBytes(), before - Blocks::kBlocks * Blocks::kBytes / 2);
  for (int i = 0; i < 3 * IdleTrim::kIdleLooks; ++i) EXPECT_FALSE(trim.Look(work));
}

}  // namespace
}  // namespace telegrad
