// Whose task is started when, with tasks that tests begin and end as they like.
#include "server/pool/task_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

// Tasks that have begun, and those that may end.
class Stage {
 public:
  std::function<void()> Task(std::string name) {
    return [this, name = std::move(name)] {
      std::unique_lock lock(mutex_);
      begun_.push_back(name);
      changed_.notify_all();
      changed_.wait(lock, [&] { return ended_ > 0 || named_.contains(name); });
      if (named_.erase(name) == 0) --ended_;
    };
  }
  // One that has begun, or will.
  void End(const std::string& name) {
    const std::lock_guard lock(mutex_);
    named_.insert(name);
    changed_.notify_all();
  }
  std::vector<std::string> WaitFor(size_t begun) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return begun_.size() >= begun; });
    return begun_;
  }
  void End(int tasks) {
    const std::lock_guard lock(mutex_);
    ended_ += tasks;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> begun_;
  std::set<std::string> named_;  // that are to end
  int ended_ = 0;
};

std::shared_ptr<const Share> NewShare(std::string name, int64_t weight = 1) {
  return std::make_shared<Share>(std::move(name), weight);
}

TEST(TaskPool, TenantsTakeTurns) {
  Stage stage;
  TaskPool pool(1);
  const auto a = NewShare("a"), b = NewShare("b");
  for (int i = 0; i < 10; ++i) pool.Post(stage.Task("a"), a);
  stage.WaitFor(1);
  pool.Post(stage.Task("b"), b);
  stage.End(1);
  EXPECT_EQ(stage.WaitFor(2)[1], "b") << "not behind all that the other had posted before";
  stage.End(10);
  EXPECT_EQ(stage.WaitFor(11).size(), 11u);
}

TEST(TaskPool, WhoHasNothingRunningGetsASpareThread) {
  Stage stage;
  TaskPool pool({.threads = 2, .spare = 2});
  const auto a = NewShare("a"), b = NewShare("b"), c = NewShare("c");
  for (int i = 0; i < 5; ++i) pool.Post(stage.Task("a"), a);
  EXPECT_EQ(stage.WaitFor(2), (std::vector<std::string>{"a", "a"}));
  pool.Post(stage.Task("b"), b);
  pool.Post(stage.Task("b"), b);
  EXPECT_EQ(stage.WaitFor(3)[2], "b") << "nothing has ended";
  pool.Post(stage.Task("c"), c);
  EXPECT_EQ(stage.WaitFor(4)[3], "c") << "before the second one of b, which has one running";
  stage.End(8);
  EXPECT_EQ(stage.WaitFor(8).size(), 8u);
}

// The end of a task is the turn of another tenant, and lets a thread take one of the tenant that
// had it: that thread has found nothing before, and nobody posts anything that would call it.
TEST(TaskPool, WhoTakesATaskCallsTheThreadForTheNext) {
  Stage stage;
  TaskPool pool({.threads = 2, .spare = 1});
  const auto a = NewShare("a", kMaxWeight), b = NewShare("b");
  pool.Post(stage.Task("a1"), a);
  stage.WaitFor(1);
  pool.Post(stage.Task("b1"), b);
  stage.WaitFor(2);
  pool.Post(stage.Task("a2"), a);
  pool.Post(stage.Task("b2"), b);
  stage.End("b1");
  std::vector<std::string> begun = stage.WaitFor(4);
  std::ranges::sort(begun);  // two threads begin them
  EXPECT_EQ(begun, (std::vector<std::string>{"a1", "a2", "b1", "b2"}))
      << "a has the greater weight, and b has none running";
  stage.End(3);
}

TEST(TaskPool, RunsWhatIsQueuedBeforeItStops) {
  int ran = 0;  // by one thread
  {
    TaskPool pool(1);
    for (int i = 0; i < 100; ++i) pool.Post([&] { ++ran; }, i % 2 ? NewShare("a") : nullptr);
  }
  EXPECT_EQ(ran, 100);
}

TEST(TaskPool, ThreadsHaveThePriorityThatWasAsked) {
  int nice = -1;
  {
    TaskPool pool({.threads = 1, .nice = 7});
    pool.Post([&] { nice = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); });
  }
  EXPECT_EQ(nice, 7);
}

}  // namespace
}  // namespace telegrad
