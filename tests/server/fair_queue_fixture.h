// A queue of a device that runs what it is told when the test says so, for as long as the test
// says.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "devices/api/preparing_queue.h"
#include "gtest/gtest.h"
#include "server/pool/fair_queue.h"
#include "tests/fakes/manual_clock.h"

namespace telegrad {

inline constexpr int64_t kMs = 1'000'000;

// A slice: whose it is, and how long it will run.
struct FakeSlice : CommandBuffer {
  std::string of;
  int64_t ns = 0;
  absl::Status status;
};

class FakeQueue final : public Queue, public PreparingQueue {
 public:
  struct Entry {
    std::shared_ptr<const FakeSlice> slice;
    std::vector<TimelinePoint> waits;
    uint64_t value = 0;
  };

  explicit FakeQueue(fakes::ManualClock* clock)
      : Queue("fake", kComputesAndCopies), clock_(*clock) {}

  TimelinePoint last() const override { return {timeline_, submitted_}; }

  // Runs the first one that it has.
  const FakeSlice& RunOne() {
    const Entry entry = std::move(queue_.front());
    queue_.pop_front();
    absl::Status status = entry.slice->status;
    for (const TimelinePoint& wait : entry.waits) {
      EXPECT_GE(wait.timeline->value(), wait.value) << "a wait that holds the device up";
      if (status.ok()) status = wait.timeline->StatusOf(wait.value);
    }
    clock_.Advance(entry.slice->ns);
    ran_.push_back(entry.slice);
    timeline_->Signal(entry.value, status);
    return *ran_.back();
  }
  void RunAll() {
    while (!queue_.empty()) RunOne();
  }
  size_t size() const { return queue_.size(); }
  std::function<void()> on_enqueue;  // before each
  // When a slice can be enqueued; empty: at any time.
  std::function<TimelinePoint(const FakeSlice&)> on_prepare;
  TimelinePoint Prepare(const std::shared_ptr<const CommandBuffer>& commands) override {
    return on_prepare ? on_prepare(static_cast<const FakeSlice&>(*commands)) : TimelinePoint{};
  }
  const std::deque<Entry>& entries() const { return queue_; }

 private:
  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override {
    if (on_enqueue) on_enqueue();
    queue_.push_back({std::static_pointer_cast<const FakeSlice>(std::move(work.commands)),
                      {waits.begin(), waits.end()},
                      ++submitted_});
    return TimelinePoint{timeline_, submitted_};
  }

  fakes::ManualClock& clock_;
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  uint64_t submitted_ = 0;
  std::deque<Entry> queue_;
  std::vector<std::shared_ptr<const FakeSlice>> ran_;
};

inline std::shared_ptr<FakeSlice> MakeSlice(std::string of, int64_t ns) {
  auto slice = std::make_shared<FakeSlice>();
  slice->of = std::move(of);
  slice->ns = ns;
  return slice;
}

// A work of slices that are predicted to take `predicted` and take `ns`.
inline SlicedWork WorkOf(const std::string& of, int slices, int64_t predicted, int64_t ns) {
  auto all = std::make_shared<std::vector<RunSlice>>();
  for (int i = 0; i < slices; ++i) {
    all->push_back({MakeSlice(of, ns), static_cast<double>(predicted) * 1e-9});
  }
  SlicedWork work;
  work.slices = std::move(all);
  return work;
}

inline bool IsOver(const TimelinePoint& point) {
  return point.timeline == nullptr || point.timeline->value() >= point.value;
}

class FairQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<FairQueue::Lane> NewLane(std::string name, int64_t weight = 1) {
    return queue_.NewLane(std::make_shared<Share>(std::move(name), weight));
  }
  // What was run of each tenant until the clock has moved by `ns`; nobody ever runs out of work.
  struct Tenant {
    std::string name;
    int64_t weight = 1;
    int slices = 1;
    int64_t predicted = 0, ns = 0;
  };
  std::map<std::string, int64_t> RunFor(const std::vector<Tenant>& tenants, int64_t ns) {
    std::map<std::string, int64_t> got;
    std::vector<std::shared_ptr<FairQueue::Lane>> lanes;
    std::vector<std::deque<TimelinePoint>> points(tenants.size());
    for (const Tenant& t : tenants) lanes.push_back(NewLane(t.name, t.weight));
    const int64_t end = clock_.Ns() + ns;
    while (clock_.Ns() < end) {
      for (size_t i = 0; i < tenants.size(); ++i) {
        const Tenant& t = tenants[i];
        while (!points[i].empty() && IsOver(points[i].front())) points[i].pop_front();
        while (points[i].size() < 40) {
          points[i].push_back(queue_.Submit(lanes[i], WorkOf(t.name, t.slices, t.predicted, t.ns)));
        }
      }
      const FakeSlice& slice = device_.RunOne();
      got[slice.of] += slice.ns;
    }
    device_.RunAll();
    return got;
  }

  fakes::ManualClock clock_;
  FakeQueue device_{&clock_};
  FairQueue queue_{&device_, &clock_};
};

}  // namespace telegrad
