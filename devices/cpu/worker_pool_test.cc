#include "devices/cpu/worker_pool.h"

#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

struct Count {
  std::vector<std::atomic<int>> runs;
  explicit Count(size_t n) : runs(n) {}
};

void CountEach(void* const* context, int64_t begin, int64_t end) {
  auto& count = *static_cast<Count*>(context[0]);
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
        void* context[] = {&count};
        pool.Run(CountEach, context, begin, begin + n, helpers);
        for (int64_t i = 0; i < begin + n; ++i) {
          ASSERT_EQ(count.runs[i], i < begin ? 0 : 1) << n << " " << i;
        }
      }
    }
  }
}

// Thousands of tiny jobs: workers that are still in, just leaving or just waking meet the next job.
TEST(WorkerPool, ManyShortJobs) {
  WorkerPool pool(4);
  for (int round = 0; round < 20'000; ++round) {
    Count count(8);
    void* context[] = {&count};
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
void Meet(void* const* context, int64_t begin, int64_t end) {
  auto& meeting = *static_cast<Meeting*>(context[0]);
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
    void* context[] = {&meeting};
    pool.Run(Meet, context, 0, 2, 1);
    EXPECT_EQ(meeting.who.size(), 2u);
  }
}

}  // namespace
}  // namespace telegrad
