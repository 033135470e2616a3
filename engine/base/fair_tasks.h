// A queue of tasks of several tenants that wait for a thread or a process. Tasks of one tenant are
// taken in order; between tenants, deficit round robin divides time by weight. The time of a task
// is predicted from the latest tasks of its tenant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/deficit_round_robin.h"
#include "engine/base/share.h"

namespace telegrad {

// Not thread-safe.
template <typename Task>
class FairTasks {
 public:
  class Flow : public DeficitRoundRobin::Flow {
   public:
    using DeficitRoundRobin::Flow::Flow;

   private:
    friend class FairTasks;
    std::deque<Task> tasks_;
    int running_ = 0;
    double usual_ns_ = 10e6;
  };
  // A task that was taken; its flow lives until Ended.
  struct Taken {
    Task task;
    Flow* flow;
    double predicted_ns;
  };

  int64_t size() const { return size_; }

  // All tasks with a null share count as one tenant's.
  void Push(std::shared_ptr<const Share> share, Task task) {
    FlowOf(std::move(share))->tasks_.push_back(std::move(task));
    ++size_;
  }

  // The next task; `idle_only`: of a tenant of which none is running.
  std::optional<Taken> Pop(bool idle_only = false) {
    for (auto& [share, flow] : flows_) {
      turns_.SetWaiting(flow.get(), !flow->tasks_.empty() && !(idle_only && flow->running_ > 0));
    }
    auto* const flow = static_cast<Flow*>(turns_.Next());
    if (flow == nullptr) return std::nullopt;
    Taken taken{std::move(flow->tasks_.front()), flow, flow->usual_ns_};
    flow->tasks_.pop_front();
    --size_;
    ++flow->running_;
    turns_.Charge(flow, taken.predicted_ns);
    return taken;
  }

  // The tenants of which Pop(idle_only) would find a task.
  int64_t idle_tenants() const {
    return std::ranges::count_if(flows_, [](const auto& known) {
      return known.second->running_ == 0 && !known.second->tasks_.empty();
    });
  }

  // Reports the time that a taken task took.
  void Ended(Flow* flow, double predicted_ns, double measured_ns) {
    --flow->running_;
    turns_.Correct(flow, predicted_ns, measured_ns);
    flow->usual_ns_ += (measured_ns - flow->usual_ns_) / 4;
    if (size_ == 0 && std::ranges::all_of(
                          flows_, [](const auto& known) { return known.second->running_ == 0; })) {
      turns_.ForgetDebts();
    }
  }

  // Takes a task back, before all others of its tenant.
  void PutBack(Flow* flow, Task task) {
    flow->tasks_.push_front(std::move(task));
    ++size_;
  }

  // Drops a task if it is still waiting.
  void Erase(const Task& task) {
    for (auto& [share, flow] : flows_) size_ -= std::erase(flow->tasks_, task);
  }

  // Takes all that wait.
  std::deque<Task> TakeAll() {
    std::deque<Task> all;
    for (auto& [share, flow] : flows_) {
      std::ranges::move(flow->tasks_, std::back_inserter(all));
      flow->tasks_.clear();
    }
    size_ = 0;
    return all;
  }

 private:
  Flow* FlowOf(std::shared_ptr<const Share> share) {
    const auto known = flows_.find(share.get());
    if (known != flows_.end()) return known->second.get();
    // Removes tenants without tasks here, unless they are in debt.
    std::erase_if(flows_, [&](const auto& flow) {
      turns_.SetWaiting(flow.second.get(), !flow.second->tasks_.empty());
      return flow.second->running_ == 0 && turns_.IsSettled(*flow.second);
    });
    const Share* const key = share.get();
    if (share == nullptr) share = std::make_shared<Share>();
    return flows_.emplace(key, std::make_unique<Flow>(std::move(share))).first->second.get();
  }

  DeficitRoundRobin turns_;
  std::map<const Share*, std::unique_ptr<Flow>> flows_;
  int64_t size_ = 0;
};

}  // namespace telegrad
