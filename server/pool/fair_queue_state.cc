// Which work is next: lanes and tenants with works that could begin, and what is predicted of them.
#include "server/pool/fair_queue_state.h"

#include <algorithm>
#include <utility>

namespace telegrad {
namespace {

// A prediction looks at so many deadlines that go before; with more it is too early.
constexpr int kMostUrgencies = 1024;

bool Reached(const TimelinePoint& point) {
  return point.timeline == nullptr || point.timeline->value() >= point.value;
}

}  // namespace

// A tenant without sessions is remembered as long as it has a debt.
FairQueue::State::Flow* FairQueue::State::FlowOf(const std::shared_ptr<const Share>& share) {
  for (auto known = flows.begin(); known != flows.end();) {
    const bool stays =
        known->first == share.get() || known->second->lanes > 0 || !turns.IsSettled(*known->second);
    known = stays ? std::next(known) : flows.erase(known);
  }
  std::unique_ptr<Flow>& flow = flows[share.get()];
  if (flow == nullptr) flow = std::make_unique<Flow>(share);
  return flow.get();
}

void FairQueue::State::SetReady(Lane* lane, const Job& job, bool ready) {
  if (lane->rank_) lane->flow_->ready.erase(*lane->rank_);
  lane->rank_.reset();
  if (ready) lane->flow_->ready.emplace(*(lane->rank_ = RankOf(job)), lane);
}

// Goes on with the waits of a work that has not begun. False if one is open or has failed.
bool FairQueue::State::IsReady(Job& job, Later* later, bool* failed) {
  for (; job.looked < job.work.waits.size(); ++job.looked) {
    const TimelinePoint& wait = job.work.waits[job.looked];
    if (Reached(wait)) {
      if (wait.timeline != nullptr) job.status = wait.timeline->StatusOf(wait.value);
      *failed = !job.status.ok();
      if (*failed) return false;
      continue;
    }
    const auto own = jobs.find(wait.timeline.get());
    if (own != jobs.end() && own->second->all_handed()) {
      job.native.push_back(own->second->last);
      continue;
    }
    later->awaits.push_back({wait, job.lane->jobs_.front()});
    return false;
  }
  return prepares == nullptr || IsPrepared(job, later, failed);
}

bool FairQueue::State::IsPrepared(Job& job, Later* later, bool* failed) {
  while (true) {
    if (job.preparing.timeline != nullptr) {
      if (!Reached(job.preparing)) {
        later->awaits.push_back({job.preparing, job.lane->jobs_.front()});
        return false;
      }
      job.status = job.preparing.timeline->StatusOf(job.preparing.value);
      job.preparing = {};
      *failed = !job.status.ok();
      if (*failed) return false;
      ++job.prepared;
    }
    if (job.prepared == job.work.slices->size()) return true;
    job.preparing = prepares->Prepare((*job.work.slices)[job.prepared].commands);
    if (job.preparing.timeline == nullptr) ++job.prepared;
  }
}

// The lane has a new first work.
void FairQueue::State::Look(Lane* lane, Later* later) {
  while (!lane->jobs_.empty()) {
    const JobRef job = lane->jobs_.front();
    bool failed = false;
    if (IsReady(*job, later, &failed)) return SetReady(lane, *job, true);
    if (!failed) return;
    lane->jobs_.pop_front();
    EndLocked(job, later);
  }
}

// The lane's first work leaves it: all of it is with the device, or it has failed.
void FairQueue::State::Pop(Lane* lane, Later* later) {
  SetReady(lane, *lane->jobs_.front(), false);
  lane->jobs_.pop_front();
  Look(lane, later);
}

void FairQueue::State::EndLocked(const JobRef& job, Later* later) {
  Flow& flow = *job->lane->flow_;
  Leave(flow, *job, job->left_ns);
  const auto urgency = flow.by_urgency.find(UrgencyOf(job->terms));
  if (urgency != flow.by_urgency.end() && --urgency->second.works == 0) {
    flow.by_urgency.erase(urgency);
  }
  if (flow.by_urgency.empty()) flow.backlog_ns = 0;  // what rounding has left
  jobs.erase(job->ended.get());
  ending.insert(job);
  later->over.push_back(job);
}

// So much of the work is not ahead of the device any more.
void FairQueue::State::Leave(Flow& flow, Job& job, double ns) {
  job.left_ns -= ns;
  flow.backlog_ns -= ns;
  const auto urgency = flow.by_urgency.find(UrgencyOf(job.terms));
  if (urgency != flow.by_urgency.end()) urgency->second.ns -= ns;
}

void FairQueue::State::Observe(Histogram& histogram, int64_t ns, const Job& job) {
  const DeviceTime* const taken = job.terms.taken.get();
  if (taken == nullptr || (taken->trace_high == 0 && taken->trace_low == 0)) {
    histogram.Observe(ns);
  } else {
    histogram.ObserveTraced(ns, taken->trace_high, taken->trace_low);
  }
}

// While the tenant is served for `own` ns, another of weight w is served for own * w / weight, or
// for all that it has if that is less.
double FairQueue::State::PredictEndLocked(const Share& share, const WorkTerms& terms,
                                          double ns) const {
  double own = ns;
  if (const auto flow = flows.find(&share); flow != flows.end()) {
    int looked = 0;
    for (const auto& [urgency, backlog] : flow->second->by_urgency) {
      if (urgency > UrgencyOf(terms) || ++looked > kMostUrgencies) break;
      own += backlog.ns;
    }
  }
  double end = own;
  for (const auto& [key, flow] : flows) {
    if (key == &share) continue;
    const double served =
        own * static_cast<double>(flow->share().weight()) / static_cast<double>(share.weight());
    end += std::min(flow->backlog_ns, served);
  }
  return end;
}

}  // namespace telegrad
