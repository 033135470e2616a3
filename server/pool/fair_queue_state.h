// What a FairQueue keeps: the works of each lane, the lanes of each tenant, and what the device
// has.
//
// It has one lock, which is held for bookkeeping alone: slices are handed to the device, and
// points are signalled, without it. One thread at a time hands out (`handing_out`), so the device
// gets slices in the order in which they were chosen.
//
// A wait for a work that this same queue has handed to the device in full is left to the device,
// which runs in order and only passes on a failure: a chain of runs keeps the device busy. Every
// other wait is awaited here, one after the other, and then that a process which the device asks
// can take the work's commands (PreparingQueue).
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "devices/api/preparing_queue.h"
#include "engine/base/deficit_round_robin.h"
#include "engine/base/mutex.h"
#include "server/pool/fair_queue.h"

namespace telegrad {

struct FairQueue::State : std::enable_shared_from_this<State> {
  struct Flow;

  // Handing out and waking up take their time, whatever was predicted.
  static constexpr double kLeastNs = 1000;
  // Predicted for a slice of a work.
  template <typename Slice>
  static double NsOf(const Slice& slice) {
    return std::max(slice.seconds * 1e9, kLeastNs);
  }

  // Reached when so many works have ended.
  struct Countdown {
    std::atomic<int64_t> left;
    const std::shared_ptr<Timeline> timeline = std::make_shared<Timeline>();

    explicit Countdown(int64_t n) : left(n) {}
    void One() {
      if (left.fetch_sub(1) == 1) timeline->Signal(1);
    }
  };

  struct Job {
    SlicedWork work;
    WorkTerms terms;
    uint64_t number = 0;    // in the order of submission
    int64_t submitted = 0;  // when
    int64_t ran = 0;        // of its slices so far
    std::shared_ptr<Lane> lane;
    const std::shared_ptr<Timeline> ended = std::make_shared<Timeline>();
    size_t looked = 0;                  // waits that need no more looking after
    size_t prepared = 0;                // slices whose commands the device can take
    TimelinePoint preparing;            // when it can take the next
    std::vector<TimelinePoint> native;  // those of them that the device looks after
    size_t handed = 0;                  // slices that the device was given
    double left_ns = 0;                 // predicted, of its slices that have not ended
    bool handing = false;               // it is being given one
    int on_device = 0;                  // slices that it has
    TimelinePoint last;                 // of the last one that it was given
    absl::Status status;
    std::vector<std::shared_ptr<Countdown>> countdowns;

    bool all_handed() const { return handed == work.slices->size(); }
    bool over() const { return on_device == 0 && !handing && (all_handed() || !status.ok()); }
  };
  using JobRef = std::shared_ptr<Job>;
  using Jobs = std::vector<JobRef>;

  // What decides between the lanes of a tenant, smallest first.
  using Rank = std::tuple<int, bool, int64_t, uint64_t>;
  static Rank RankOf(const Job& job) {
    return {-job.terms.priority, job.handed == 0, job.terms.deadline_ns, job.number};
  }

  struct Flow : DeficitRoundRobin::Flow {
    using DeficitRoundRobin::Flow::Flow;
    int lanes = 0;
    std::map<Rank, Lane*> ready;  // lanes whose first work could begin or go on
    // Predicted, of its works' slices that have not ended: of all, and by priority and deadline,
    // the most urgent first.
    double backlog_ns = 0;
    struct Backlog {
      double ns = 0;
      int works = 0;
    };
    std::map<std::pair<int, int64_t>, Backlog> by_urgency;
  };

  // A slice on its way to the device.
  struct Handed {
    JobRef job;
    size_t index = 0;
    double predicted_ns = 0;
    int64_t since = 0;  // when it was handed over
  };
  // A work that is not ready until this is reached.
  struct Await {
    TimelinePoint point;
    JobRef job;
  };
  // What is to be done when the lock is not held any more.
  struct Later {
    Jobs over;
    std::vector<Await> awaits;
  };

  State(Queue* q, const Clock* c)
      : queue(*q), prepares(dynamic_cast<PreparingQueue*>(q)), clock(*c) {}

  Flow* FlowOf(const std::shared_ptr<const Share>& share) TG_REQUIRES(mutex);
  static std::pair<int, int64_t> UrgencyOf(const WorkTerms& terms) {
    return {-terms.priority, terms.deadline_ns};
  }
  static void Leave(Flow& flow, Job& job, double ns);  // with the lock, as all that changes a flow
  static void Observe(Histogram& histogram, int64_t ns, const Job& job);
  double PredictEndLocked(const Share& share, const WorkTerms& terms, double ns) const
      TG_REQUIRES(mutex);
  void Look(Lane* lane, Later* later) TG_REQUIRES(mutex);
  bool IsReady(Job& job, Later* later, bool* failed) TG_REQUIRES(mutex);
  bool IsPrepared(Job& job, Later* later, bool* failed) TG_REQUIRES(mutex);
  static void SetReady(Lane* lane, const Job& job, bool ready);
  void Pop(Lane* lane, Later* later) TG_REQUIRES(mutex);
  bool HasRoom(double ns) const TG_REQUIRES(mutex);
  bool Choose(Handed* handed, Later* later) TG_REQUIRES(mutex);
  void HandOver(Handed handed, bool by_thread);
  void Ended(const Handed& handed, const absl::Status& status);
  void EndLocked(const JobRef& job, Later* later) TG_REQUIRES(mutex);
  void Do(Later later);
  void DoOne(Later later);
  void Awaited(const JobRef& job);
  void HandOut();

  Queue& queue;
  PreparingQueue* const prepares;  // null: the device can take all commands at any time
  const Clock& clock;
  Histogram wait_time, run_time;

  mutable Mutex mutex;  // also of what the flows, lanes and jobs have
  ConditionVariable all_over;
  DeficitRoundRobin turns TG_GUARDED_BY(mutex);
  std::map<const Share*, std::unique_ptr<Flow>> flows TG_GUARDED_BY(mutex);
  absl::flat_hash_map<const Timeline*, JobRef> jobs TG_GUARDED_BY(mutex);  // that are not over
  // That are over, and whose points are yet to be signalled.
  absl::flat_hash_set<JobRef> ending TG_GUARDED_BY(mutex);
  int tenants TG_GUARDED_BY(mutex) = 0;  // that have lanes
  uint64_t submitted TG_GUARDED_BY(mutex) = 0;
  bool handing_out TG_GUARDED_BY(mutex) = false;
  int on_device TG_GUARDED_BY(mutex) = 0;
  double on_device_ns TG_GUARDED_BY(mutex) = 0;  // predicted
  int64_t last_end TG_GUARDED_BY(mutex) = 0;     // when the device ended something
  std::atomic<bool> closed{false};               // written under the lock
};

class FairQueue::Lane {
 public:
  Lane(std::shared_ptr<State> state, State::Flow* flow) : state_(std::move(state)), flow_(flow) {}
  ~Lane() {
    const MutexLock lock(state_->mutex);
    if (--flow_->lanes == 0) --state_->tenants;
  }

 private:
  friend struct State;
  friend class FairQueue;
  const std::shared_ptr<State> state_;
  State::Flow* const flow_;
  std::deque<State::JobRef> jobs_;   // of which not all has been handed to the device
  std::optional<State::Rank> rank_;  // while it is among the flow's ready ones
};

}  // namespace telegrad
