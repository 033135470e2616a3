// The worker pool runs each iteration of a job once, in IEEE arithmetic whatever the caller has
// set, on several threads at a time; and a job can be ended in the middle.
#include "devices/cpu/worker_pool.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "devices/cpu/interrupt.h"
#include "devices/cpu/launch_watch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

// The word of an object, and back.
template <typename T>
uint64_t WordOf(T* object) {
  return reinterpret_cast<uint64_t>(object);
}
template <typename T>
T* ObjectOf(uint64_t word) {
  return reinterpret_cast<T*>(word);
}

struct Count {
  std::vector<std::atomic<int>> runs;
  explicit Count(size_t n) : runs(n) {}
};

void CountEach(const uint64_t* words, int64_t begin, int64_t end) {
  auto& count = *ObjectOf<Count>(words[0]);
  for (int64_t i = begin; i < end; ++i) count.runs[i].fetch_add(1);
}

TEST(WorkerPool, RunsEachIterationOnce) {
  for (int threads : {1, 2, 4}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      for (int helpers = 0; helpers <= threads; ++helpers) {
        const int64_t begin = helpers % 3;
        Count count(begin + n);
        const uint64_t context[] = {WordOf(&count)};
        pool.Run(CountEach, context, begin, begin + n, helpers);
        for (int64_t i = 0; i < begin + n; ++i) {
          ASSERT_EQ(count.runs[i], i < begin ? 0 : 1) << n << " " << i;
        }
      }
    }
  }
}

// Of each of the two halves, whoever takes them: the first parts are an eighth of all, the last
// ones a single iteration.
TEST(WorkerPool, PartsGetSmallerTowardsTheEnd) {
  struct Parts {
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> all;
  };
  WorkerPool pool(2);
  for (const int64_t n : {17, 28, 100}) {
    Parts parts;
    const uint64_t context[] = {WordOf(&parts)};
    const auto note = [](const uint64_t* words, int64_t begin, int64_t end) {
      auto& noted = *ObjectOf<Parts>(words[0]);
      const std::lock_guard lock(noted.mutex);
      noted.all.emplace_back(begin, end - begin);
    };
    pool.Run(note, context, 0, n, 1);
    std::ranges::sort(parts.all);
    int64_t at = 0, before = n;
    for (const auto& [begin, size] : parts.all) {
      EXPECT_EQ(begin, at);
      if (begin == 0 || begin == (n + 1) / 2) {
        EXPECT_EQ(size, n / 8);
        EXPECT_TRUE(begin == 0 || before == 1) << before;
      } else {
        EXPECT_LE(size, before);
      }
      at += size;
      before = size;
    }
    EXPECT_EQ(at, n);
    EXPECT_EQ(before, 1);
  }
}

#if defined(__x86_64__)
// Both the calling thread and the workers, which inherit from the one that starts them.
TEST(WorkerPool, ComputesInIeeeArithmeticWhateverTheCallerDoes) {
  constexpr uint32_t kDefault = 0x1f80, kFlushingTowardsZero = 0xffc0;  // MXCSR without its flags
  const uint32_t before = _mm_getcsr();
  _mm_setcsr(kFlushingTowardsZero);
  std::vector<uint32_t> seen(64);
  {
    WorkerPool pool(3);
    const uint64_t context[] = {WordOf(seen.data())};
    pool.Run(
        [](const uint64_t* words, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            ObjectOf<uint32_t>(words[0])[i] = _mm_getcsr() & kFlushingTowardsZero;
          }
        },
        context, 0, 64, 2);
  }
  const uint32_t after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_THAT(seen, testing::Each(kDefault));
  EXPECT_EQ(after & kFlushingTowardsZero, kFlushingTowardsZero);
}
#endif

// Thousands of tiny jobs: workers that are still in, just leaving or just waking meet the next job.
TEST(WorkerPool, ManyShortJobs) {
  WorkerPool pool(4);
  for (int round = 0; round < 20'000; ++round) {
    Count count(8);
    const uint64_t context[] = {WordOf(&count)};
    pool.Run(CountEach, context, 0, 8, 3);
    for (auto& runs : count.runs) ASSERT_EQ(runs, 1);
  }
}

struct Meeting {
  std::atomic<int> present{0};
  std::mutex mutex;
  std::set<std::thread::id> who;
};

// Two iterations that each wait until the other has begun: only two threads at once get through.
void Meet(const uint64_t* words, int64_t begin, int64_t end) {
  auto& meeting = *ObjectOf<Meeting>(words[0]);
  for (int64_t i = begin; i < end; ++i) {
    {
      std::lock_guard lock(meeting.mutex);
      meeting.who.insert(std::this_thread::get_id());
    }
    meeting.present.fetch_add(1);
    while (meeting.present.load() < 2) std::this_thread::yield();
  }
}

TEST(WorkerPool, ThreadsRunAtTheSameTime) {
  WorkerPool pool(2);
  for (int round = 0; round < 100; ++round) {
    Meeting meeting;
    const uint64_t context[] = {WordOf(&meeting)};
    pool.Run(Meet, context, 0, 2, 1);
    EXPECT_EQ(meeting.who.size(), 2u);
  }
}

// What a thread of one job has written is in its own cache, so it begins with the same iterations
// of the next one.
TEST(WorkerPool, EachThreadBeginsWithItsOwnShare) {
  struct First {
    std::atomic<int> present{0};
    std::mutex mutex;
    std::map<std::thread::id, int64_t> begins;
  };
  WorkerPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 100; ++round) {
    First first;
    const uint64_t context[] = {WordOf(&first)};
    const auto note = [](const uint64_t* words, int64_t begin, int64_t) {
      auto& noted = *ObjectOf<First>(words[0]);
      bool is_new = false;
      {
        const std::lock_guard lock(noted.mutex);
        is_new = noted.begins.emplace(std::this_thread::get_id(), begin).second;
      }
      if (!is_new) return;
      noted.present.fetch_add(1);
      while (noted.present.load() < 2) std::this_thread::yield();  // both take a part
    };
    pool.Run(note, context, 0, 16, 1);
    ASSERT_EQ(first.begins.size(), 2u);
    for (const auto& [thread, begin] : first.begins) EXPECT_EQ(begin, thread == caller ? 0 : 8);
  }
}

void Forever(const uint64_t* words, int64_t, int64_t) {
  ObjectOf<std::atomic<int>>(words[0])->fetch_add(1);
  for (volatile int i = 0;;) i = i + 1;
}

TEST(WorkerPool, AJobCanBeEndedInTheMiddle) {
  if (!kCanInterruptKernels) GTEST_SKIP() << "ThreadSanitizer delays the signal";
  for (const int threads : {1, 2}) {
    WorkerPool pool(threads);
    uint64_t before = 0;
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> inside{0};
      const uint64_t context[] = {WordOf(&inside)};
      std::thread other([&, caller = pthread_self()] {
        while (inside.load() < threads) std::this_thread::yield();
        pool.Interrupt(before, caller);  // of a job that has ended: does nothing
        before = pool.job();
        pool.Interrupt(before, caller);
      });
      EXPECT_FALSE(pool.Run(Forever, context, 0, 64, threads - 1));
      other.join();
      EXPECT_EQ(inside, threads);
      // What comes next is whole.
      Count count(64);
      const uint64_t counts[] = {WordOf(&count)};
      EXPECT_TRUE(pool.Run(CountEach, counts, 0, 64, threads - 1));
      for (auto& runs : count.runs) ASSERT_EQ(runs, 1);
    }
  }
}

TEST(LaunchWatch, EndsWhatIsCancelledAndWhatTakesTooLong) {
  if (!kCanInterruptKernels) GTEST_SKIP() << "ThreadSanitizer delays the signal";
  WorkerPool pool(2);
  std::atomic<int> inside{0};
  const uint64_t context[] = {WordOf(&inside)};
  {
    LaunchWatch watch(&pool, absl::InfiniteDuration());
    Cancellation cancellation;
    watch.Begin(&cancellation);
    std::thread other([&] {
      while (inside.load() < 2) std::this_thread::yield();
      cancellation.Cancel();
    });
    EXPECT_FALSE(pool.Run(Forever, context, 0, 64, 1));
    watch.End();
    other.join();
    EXPECT_EQ(watch.why().code(), absl::StatusCode::kCancelled);
  }
  LaunchWatch watch(&pool, absl::Milliseconds(30));
  watch.Begin(nullptr);
  EXPECT_FALSE(pool.Run(Forever, context, 0, 64, 1));
  watch.End();
  EXPECT_EQ(watch.why().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace telegrad
