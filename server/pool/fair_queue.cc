#include "server/pool/fair_queue.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "server/pool/fair_queue_state.h"

namespace telegrad {

FairQueue::FairQueue(Queue* queue, const Clock* clock)
    : state_(std::make_shared<State>(queue, clock)) {}

FairQueue::~FairQueue() {
  State::Later later;
  {
    const MutexLock lock(state_->mutex);
    state_->closed = true;
    std::vector<State::JobRef> open;
    for (const auto& [timeline, job] : state_->jobs) open.push_back(job);
    for (const auto& job : open) {
      Lane& lane = *job->lane;
      const bool queued = std::ranges::find(lane.jobs_, job) != lane.jobs_.end();
      if (!queued) continue;  // all of it is with the device
      if (job->status.ok()) {
        job->status = absl::CancelledError("the device was closed before the work could run");
      }
      if (job->handing) continue;
      state_->SetReady(&lane, *job, false);
      std::erase(lane.jobs_, job);
      if (job->over()) state_->EndLocked(job, &later);
    }
  }
  state_->Do(std::move(later));
  ReleasableLock lock(state_->mutex);
  while (!state_->jobs.empty() || !state_->ending.empty() || state_->handing_out) {
    state_->all_over.wait(lock);
  }
}

std::shared_ptr<FairQueue::Lane> FairQueue::NewLane(std::shared_ptr<const Share> share) {
  const MutexLock lock(state_->mutex);
  State::Flow* const flow = state_->FlowOf(share);
  if (++flow->lanes == 1) ++state_->tenants;
  return std::make_shared<Lane>(state_, flow);
}

TimelinePoint FairQueue::Submit(const std::shared_ptr<Lane>& lane, SlicedWork work,
                                WorkTerms terms) {
  const auto job = std::make_shared<State::Job>();
  job->work = std::move(work);
  job->terms = std::move(terms);
  job->lane = lane;
  job->submitted = state_->clock.Ns();
  const TimelinePoint point{job->ended, 1};
  State::Later later;
  {
    const MutexLock lock(state_->mutex);
    job->number = ++state_->submitted;
    if (state_->closed) {
      job->status = absl::CancelledError("the device was closed before the work could run");
      later.over.push_back(job);
    } else {
      for (const auto& slice : *job->work.slices) job->left_ns += State::NsOf(slice);
      lane->flow_->backlog_ns += job->left_ns;
      auto& urgency = lane->flow_->by_urgency[State::UrgencyOf(job->terms)];
      urgency.ns += job->left_ns;
      ++urgency.works;
      state_->jobs.emplace(job->ended.get(), job);
      lane->jobs_.push_back(job);
      if (lane->jobs_.size() == 1) state_->Look(lane.get(), &later);
      state_->turns.SetWaiting(lane->flow_, !lane->flow_->ready.empty());
    }
  }
  state_->Do(std::move(later));
  state_->HandOut();
  return point;
}

const Histogram& FairQueue::wait_time() const { return state_->wait_time; }
const Histogram& FairQueue::run_time() const { return state_->run_time; }

int64_t FairQueue::works() const {
  const MutexLock lock(state_->mutex);
  return static_cast<int64_t>(state_->jobs.size());
}

double FairQueue::backlog_ns() const {
  const MutexLock lock(state_->mutex);
  double ns = 0;
  for (const auto& [key, flow] : state_->flows) ns += flow->backlog_ns;
  return std::max(ns, 0.0);
}

double FairQueue::PredictEnd(const Share& share, const WorkTerms& terms, double ns) const {
  const MutexLock lock(state_->mutex);
  return state_->PredictEndLocked(share, terms, ns);
}

std::vector<FairQueue::Waiting> FairQueue::Who() const {
  const MutexLock lock(state_->mutex);
  std::map<std::string_view, Waiting> by_tenant;
  for (const auto& [timeline, job] : state_->jobs) {
    const State::Flow& flow = *job->lane->flow_;
    Waiting& row = by_tenant[flow.share().name()];
    row.debt_ns = std::max(0.0, -flow.deficit());
    ++row.works;
  }
  std::vector<Waiting> out;
  for (auto& [name, row] : by_tenant) {
    row.tenant = name;
    out.push_back(std::move(row));
  }
  return out;
}

TimelinePoint FairQueue::Drained() {
  const MutexLock lock(state_->mutex);
  const size_t open = state_->jobs.size() + state_->ending.size();
  if (open == 0) return {};
  const auto countdown = std::make_shared<State::Countdown>(static_cast<int64_t>(open));
  for (const auto& [timeline, job] : state_->jobs) job->countdowns.push_back(countdown);
  for (const auto& job : state_->ending) job->countdowns.push_back(countdown);
  return {countdown->timeline, 1};
}

}  // namespace telegrad
