// The state has one lock, which is held for bookkeeping alone: slices are handed to the device, and
// points are signalled, without it. One thread at a time hands out (`handing_out`), so the device
// gets slices in the order in which they were chosen.
//
// A wait for a work that this same queue has handed to the device in full is left to the device,
// which runs in order and only passes on a failure: a chain of runs keeps the device busy. Every
// other wait is awaited here, one after the other.
#include "server/pool/fair_queue.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/deficit_round_robin.h"
#include "engine/base/mutex.h"
#include "engine/execution/prediction.h"

namespace telegrad {
namespace {

// On the device at a time: two slices; or as many as are predicted to take this time together.
constexpr int kSlicesAhead = 2, kShortSlicesAhead = 16;
constexpr double kShortNs = kSegmentSeconds * 1e9 / 10;
// Where several tenants have sessions, any of them may come next, and what is on the device is what
// it waits for: two slices only if they are predicted to take no longer than one segment together.
// Otherwise the device gets its next slice when one has ended, which costs some microseconds of
// milliseconds. A tenant alone does not pay for that.
constexpr double kSharedNs = kSegmentSeconds * 1e9;
// A slice that is predicted to take longer could not be cut. It is handed out when the device has
// nothing else: whoever comes waits for one of them, not for two, and the moment in which the
// device has no work is short against it.
constexpr double kLongNs = kSegmentSeconds * 1e9 * 1.5;
// Handing out and waking up take their time, whatever was predicted.
constexpr double kLeastNs = 1000;
// A submitter hands out so many slices that he may have to run himself; then the device's thread
// goes on.
constexpr int kSlicesBySubmitter = 4;
// After so many of whomever, whoever hands out leaves the rest to the device's thread: others may
// submit as fast as the device runs what they submit.
constexpr int kMostSlices = 64;
// A prediction looks at so many deadlines that go before; with more it is too early.
constexpr int kMostUrgencies = 1024;
// Of what signalled points set off within each other.
constexpr int kMaxDepth = 8;

// Predicted.
template <typename Slice>
double NsOf(const Slice& slice) {
  return std::max(slice.seconds * 1e9, kLeastNs);
}

bool Reached(const TimelinePoint& point) {
  return point.timeline == nullptr || point.timeline->value() >= point.value;
}

}  // namespace

struct FairQueue::State : std::enable_shared_from_this<State> {
  struct Flow;

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

  State(Queue* q, const Clock* c) : queue(*q), clock(*c) {}

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
  return true;
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

// Whether the device may have a slice that is predicted to take `ns` behind what it has.
bool FairQueue::State::HasRoom(double ns) const {
  if (on_device == 0) return true;
  if (on_device < kShortSlicesAhead && on_device_ns + ns <= kShortNs) return true;
  if (on_device >= kSlicesAhead || ns > kLongNs) return false;
  return tenants < 2 || on_device_ns + ns <= kSharedNs;
}

// The next slice for the device; false if there is none, or the device has enough.
bool FairQueue::State::Choose(Handed* handed, Later* later) {
  while (!closed) {
    auto* const flow = static_cast<Flow*>(turns.Next());
    if (flow == nullptr) return false;
    Lane* const lane = flow->ready.begin()->second;
    const JobRef job = lane->jobs_.front();
    if (job->work.cancellation != nullptr) job->status = job->work.cancellation->Check();
    if (!job->status.ok()) {
      Pop(lane, later);
      turns.SetWaiting(flow, !flow->ready.empty());
      if (job->over()) EndLocked(job, later);
      continue;
    }
    const double ns = NsOf((*job->work.slices)[job->handed]);
    if (!HasRoom(ns)) return false;
    SetReady(lane, *job, false);  // until it has this one
    job->handing = true;
    ++job->on_device;
    ++on_device;
    on_device_ns += ns;
    turns.Charge(flow, ns);
    *handed = {job, job->handed, ns, clock.Ns()};
    if (job->handed == 0) {
      Observe(wait_time, handed->since - job->submitted, *job);
      int64_t never = 0;
      if (job->terms.taken != nullptr) {
        job->terms.taken->first_ns.compare_exchange_strong(never, handed->since);
      }
    }
    return true;
  }
  return false;
}

// `by_thread`: not on this thread, even if it is so short that its submitter could run it.
void FairQueue::State::HandOver(Handed handed, bool by_thread) {
  Job& job = *handed.job;
  const bool last = handed.index + 1 == job.work.slices->size();
  std::vector<TimelinePoint> waits;
  if (handed.index > 0) {
    waits.push_back(job.last);
  } else {
    waits = std::move(job.native);
  }
  const TimelinePoint now{by_thread ? std::make_shared<Timeline>() : nullptr, 1};
  if (by_thread) waits.push_back(now);
  const auto point = queue.Submit((*job.work.slices)[handed.index].commands,
                                  last ? std::move(job.work.bindings) : job.work.bindings, waits,
                                  job.work.trace, job.work.cancellation);
  if (by_thread) now.timeline->Signal(1);
  Later later;
  {
    const MutexLock lock(mutex);
    Lane* const lane = job.lane.get();
    job.handing = false;
    job.handed = handed.index + 1;
    if (point.ok()) job.last = *point;
    if (!point.ok() && job.status.ok()) job.status = point.status();
    if (job.all_handed() || !job.status.ok()) {
      Pop(lane, &later);
    } else {
      SetReady(lane, job, true);
    }
    turns.SetWaiting(lane->flow_, !lane->flow_->ready.empty());
  }
  Do(std::move(later));
  if (!point.ok()) return Ended(handed, point.status());
  point->timeline->OnReached(point->value,
                             [self = shared_from_this(), handed = std::move(handed)](
                                 const absl::Status& status) { self->Ended(handed, status); });
}

// The device has ended a slice. It runs one after the other, so this one ran from the end of the
// one before it, or from when it was handed over.
void FairQueue::State::Ended(const Handed& handed, const absl::Status& status) {
  Later later;
  Job& job = *handed.job;
  {
    const MutexLock lock(mutex);
    const int64_t now = clock.Ns();
    const int64_t ran = std::max<int64_t>(now - std::max(last_end, handed.since), 0);
    last_end = std::max(last_end, now);
    if (job.terms.taken != nullptr) {
      job.terms.taken->ns.fetch_add(ran, std::memory_order_relaxed);
      job.terms.taken->last_ns.store(now, std::memory_order_relaxed);
      if (job.terms.taken->ended_slice) job.terms.taken->ended_slice(ran);
    }
    job.ran += ran;
    Lane* const lane = job.lane.get();
    turns.Correct(lane->flow_, handed.predicted_ns, std::max(static_cast<double>(ran), kLeastNs));
    --on_device;
    on_device_ns -= handed.predicted_ns;
    Leave(*lane->flow_, job, handed.predicted_ns);
    --job.on_device;
    if (!status.ok() && job.status.ok()) job.status = status;
    if (!job.status.ok() && !job.handing && !lane->jobs_.empty() &&
        lane->jobs_.front() == handed.job) {
      Pop(lane, &later);
      turns.SetWaiting(lane->flow_, !lane->flow_->ready.empty());
    }
    if (job.over()) {
      Observe(run_time, job.ran, job);
      EndLocked(handed.job, &later);
    }
    if (jobs.empty()) turns.ForgetDebts();
  }
  Do(std::move(later));
  HandOut();
}

// A wait of the lane's first work is reached.
void FairQueue::State::Awaited(const JobRef& job) {
  Later later;
  {
    const MutexLock lock(mutex);
    if (closed) return;
    Lane* const lane = job->lane.get();  // which it has as long as it waits
    Look(lane, &later);
    turns.SetWaiting(lane->flow_, !lane->flow_->ready.empty());
  }
  Do(std::move(later));
  HandOut();
}

// What a signalled point sets off may be the end of another work, whose point sets off the next: a
// client decides how long such a chain is. So from some depth on each thread keeps a list instead
// of calling itself.
void FairQueue::State::Do(Later later) {
  static thread_local int depth = 0;
  static thread_local std::deque<std::pair<std::shared_ptr<State>, Later>> deferred;
  if (depth == kMaxDepth) {
    deferred.emplace_back(shared_from_this(), std::move(later));
    return;
  }
  ++depth;
  DoOne(std::move(later));
  while (depth == kMaxDepth && !deferred.empty()) {
    auto [state, next] = std::move(deferred.front());
    deferred.pop_front();
    state->DoOne(std::move(next));
  }
  --depth;
}

void FairQueue::State::DoOne(Later later) {
  for (const JobRef& job : later.over) {
    // First the references, then the point: whoever sees the point finds all that free.
    job->work = {};
    job->native.clear();
    job->last = {};
    job->lane.reset();
    job->ended->Signal(1, job->status);
    std::vector<std::shared_ptr<Countdown>> countdowns;
    {
      const MutexLock lock(mutex);
      ending.erase(job);
      countdowns.swap(job->countdowns);
    }
    for (const auto& countdown : countdowns) countdown->One();
  }
  for (Await& await : later.awaits) {
    const TimelinePoint point = std::move(await.point);
    point.timeline->OnReached(point.value, [self = shared_from_this(), job = std::move(await.job)](
                                               const absl::Status&) { self->Awaited(job); });
  }
  if (closed) {
    const MutexLock lock(mutex);
    all_over.notify_all();
  }
}

void FairQueue::State::HandOut() {
  for (int handed = 0;; ++handed) {
    Later later;
    Handed next;
    bool found = false;
    {
      const MutexLock lock(mutex);
      if (handed == 0 && handing_out) return;  // who does will find what there is
      // The end of a slice that the device still has finds nobody handing out, and goes on.
      const bool leaves = handed >= kMostSlices && on_device > 0;
      if (!leaves) found = Choose(&next, &later);
      handing_out = found;
      if (closed) all_over.notify_all();
    }
    Do(std::move(later));
    if (!found) return;
    HandOver(std::move(next), handed >= kSlicesBySubmitter);
  }
}

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
      for (const auto& slice : *job->work.slices) job->left_ns += NsOf(slice);
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
