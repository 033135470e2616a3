// The order in which tenants' tasks are taken, by counts.
#include "engine/base/fair_tasks.h"

#include <map>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

std::shared_ptr<const Share> TenantOf(std::string name, int64_t weight = 1) {
  return std::make_shared<Share>(std::move(name), weight);
}

TEST(FairTasks, TimeIsAsTheWeightsWhateverTasksTake) {
  FairTasks<std::string> tasks;
  const auto a = TenantOf("a", 1), b = TenantOf("b", 3);
  for (int i = 0; i < 4000; ++i) {
    tasks.Push(a, "a");
    tasks.Push(b, "b");
  }
  // Those of b take twenty times as long.
  std::map<std::string, double> took;
  for (int i = 0; i < 2000; ++i) {
    const auto next = tasks.Pop();
    ASSERT_TRUE(next);
    const double ns = next->task == "a" ? 1e6 : 20e6;
    took[next->task] += ns;
    tasks.Ended(next->flow, next->predicted_ns, ns);
  }
  EXPECT_NEAR(took["b"] / took["a"], 3, 0.1);
  EXPECT_EQ(tasks.size(), 6000);
}

TEST(FairTasks, OneTenantsAreInOrderAndOneThatCameBackIsFirst) {
  FairTasks<int> tasks;
  for (int i = 1; i <= 4; ++i) tasks.Push(nullptr, i);
  const auto first = tasks.Pop();
  EXPECT_EQ(first->task, 1);
  tasks.PutBack(first->flow, first->task);
  tasks.Ended(first->flow, first->predicted_ns, 1);
  tasks.Erase(2);
  EXPECT_EQ(tasks.size(), 3);
  EXPECT_EQ(tasks.Pop()->task, 1);
  EXPECT_EQ(tasks.Pop()->task, 3);
  EXPECT_EQ(tasks.TakeAll(), (std::deque<int>{4}));
  EXPECT_FALSE(tasks.Pop());
}

TEST(FairTasks, OnlyOfTenantsThatHaveNoneRunning) {
  FairTasks<std::string> tasks;
  const auto a = TenantOf("a"), b = TenantOf("b");
  for (int i = 0; i < 2; ++i) {
    tasks.Push(a, "a");
    tasks.Push(b, "b");
  }
  const auto one = tasks.Pop();
  EXPECT_EQ(one->task, "a");
  EXPECT_EQ(tasks.Pop(/*idle_only=*/true)->task, "b");
  EXPECT_FALSE(tasks.Pop(/*idle_only=*/true));
  tasks.Ended(one->flow, one->predicted_ns, 1e6);
  EXPECT_EQ(tasks.Pop(/*idle_only=*/true)->task, "a");
}

}  // namespace
}  // namespace telegrad
