// A run on one device is ordered behind the session's earlier runs there by its lane in the
// device's queue; its explicit waits only propagate their failures. A run on several devices also
// reads in copy queues, so the next writer of its buffers waits for it.
#include "server/operations/run.h"

#include <algorithm>
#include <deque>
#include <span>
#include <utility>

#include "engine/base/status.h"
#include "server/operations/compiling.h"
#include "server/operations/placement.h"
#include "server/pool/admission.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

// What the runs of a session have from one to the next.
struct RunState {
  std::deque<TimelinePoint> in_flight;
  std::weak_ptr<TracedRun> traced;  // until its answer is sent
  // Of the run at hand: what it binds, with null for an unknown handle, and what it waits for.
  std::vector<Buffer*> bound;
  std::vector<BufferView> views;
  std::vector<TimelinePoint> waits;
  Placement placement;

  void Unbind() {
    bound.clear();
    views.clear();
    waits.clear();
  }
};

// What a run binds is bound while it is at hand only: a buffer that is freed after it would keep
// its memory, and its place in the tenant's quota, until the session's next run.
class BoundWhileHere {
 public:
  explicit BoundWhileHere(RunState& state) : state_(state) {}
  BoundWhileHere(const BoundWhileHere&) = delete;
  BoundWhileHere& operator=(const BoundWhileHere&) = delete;
  ~BoundWhileHere() { state_.Unbind(); }

 private:
  RunState& state_;
};

// True if the run leaves nothing in the buffer of what was there before, good or bad.
bool Replaces(const StoredGraph& graph, size_t slot, const Buffer& buffer) {
  return slot < graph.slots.size() && graph.slots[slot].replaced &&
         graph.slots[slot].bytes == buffer.bytes();
}

// A run on several devices reads buffers in queues behind which later runs are not ordered. Returns
// the point at which it has read them, which never fails; no point for a run on one device.
TimelinePoint EndOfTransfers(const Placement& placement, const TimelinePoint& run) {
  if (!placement.several() || run.timeline == nullptr) return {};
  const TimelinePoint read{std::make_shared<Timeline>(), 1};
  run.timeline->OnReached(run.value,
                          [timeline = read.timeline](const absl::Status&) { timeline->Signal(1); });
  return read;
}

// Whether one of the run's devices has work to end that may hold what the run needs: its end.
TimelinePoint BusyDevice(const Environment& env, const Placement& placement) {
  for (Device* const device : placement.devices()) {
    FairQueue* const queue =
        device == nullptr ? nullptr : env.devices->queue(*device, QueueKind::kCompute);
    if (queue == nullptr) continue;
    TimelinePoint drained = queue->Drained();
    if (!IsReached(drained)) return drained;
  }
  return {};
}

class RunAction final : public Action {
 public:
  explicit RunAction(RunOp op) : op_(std::move(op)) {}

  void Arrive(const Arrival& arrival) override;
  std::shared_ptr<Cancellation> cancellation() const override { return cancellation_; }
  Step Do(Turn& turn) override;
  Step Refuse(Turn& turn, const absl::Status& error) override;

 private:
  absl::Status Bind(Turn& turn, const StoredGraph& graph) const;
  absl::Status BindPart(size_t slot, const StoredGraph& graph, BufferView view,
                        RunState& state) const;
  Step FindExecutable(Turn& turn, const StoredGraph& graph, absl::Status* status);
  absl::Status MayRun(const Turn& turn) const;
  static std::shared_ptr<HeldRead> CollectWaits(const StoredGraph& graph, RunState& state);
  absl::StatusOr<std::shared_ptr<TracedRun>> NewTrace(const Turn& turn) const;
  Step Submit(Turn& turn, const StoredGraph& graph);
  void Started(Turn& turn, const StoredGraph& graph, const TimelinePoint& point,
               std::shared_ptr<DeviceTime> taken, std::shared_ptr<TracedRun> traced);
  Step Fail(Turn& turn, const StoredGraph& graph, const absl::Status& error);

  const RunOp op_;
  std::shared_ptr<Cancellation> cancellation_;
  // By the clock of the environment; the last one: to the engine.
  int64_t arrived_ns_ = 0, deadline_ns_ = INT64_MAX, submitted_ns_ = 0;
  std::optional<ExecutableCache::Result> compiled_;  // before it was blocked
  TakenTime device_time_;                            // for it, as predicted
  bool waited_ = false;                              // for what other sessions hold
};

void RunAction::Arrive(const Arrival& arrival) {
  const Clock* const clock = arrival.env.clock;
  arrived_ns_ = clock->Ns();
  if (op_.timeout_ms != 0) deadline_ns_ = arrived_ns_ + op_.timeout_ms * 1'000'000;
  cancellation_ = std::make_shared<Cancellation>(arrival.session, clock, deadline_ns_);
}

Step RunAction::Refuse(Turn& turn, const absl::Status& error) {
  const auto graph = FindGraph(turn.tenant(), op_.hash);
  if (!graph.ok()) return turn.Fail(error);
  const BoundWhileHere bound(turn.state<RunState>());
  Bind(turn, **graph).IgnoreError();  // only to know what it would have written
  return Fail(turn, **graph, error);
}

// Fails a run that was not submitted: poisons the buffers that it would have written.
Step RunAction::Fail(Turn& turn, const StoredGraph& graph, const absl::Status& error) {
  device_time_ = {};
  const std::vector<Buffer*>& bound = turn.state<RunState>().bound;
  for (size_t i = 0; i < bound.size() && i < graph.slots.size(); ++i) {
    if (bound[i] != nullptr && bound[i]->memory() != nullptr && graph.slots[i].written) {
      bound[i]->SetPoison(error);
    }
  }
  return turn.Fail(error);
}

// Appends what a slot binds of a buffer: all of it, or the part that the request says.
absl::Status RunAction::BindPart(size_t slot, const StoredGraph& graph, BufferView view,
                                 RunState& state) const {
  if (!op_.offsets.empty()) {
    const uint64_t offset = slot < op_.offsets.size() ? op_.offsets[slot] : 0;
    const int64_t bytes = slot < graph.slots.size() ? graph.slots[slot].bytes : 0;
    if (bytes > view.length || offset > static_cast<uint64_t>(view.length - bytes)) {
      return InvalidArgument("run: slot ", slot, ": ", bytes, " bytes at offset ", offset,
                             " do not fit into buffer ", op_.handles[slot], ", which has ",
                             view.length);
    }
    view.offset += static_cast<int64_t>(offset);
    view.length = bytes;
  }
  state.views.push_back(std::move(view));
  return absl::OkStatus();
}

// Fills what the state has of the run at hand.
absl::Status RunAction::Bind(Turn& turn, const StoredGraph& graph) const {
  RunState& state = turn.state<RunState>();
  state.Unbind();
  const auto count = static_cast<int64_t>(op_.handles.size());
  if (count > turn.env().limits.run_handles) {
    return ResourceExhausted("run of ", count, " handles; a graph has at most ",
                             turn.env().limits.run_handles);
  }
  absl::Status status = state.placement.Name(turn, graph, op_.devices);
  if (op_.offsets.size() > op_.handles.size()) {
    status = InvalidArgument("run: ", op_.offsets.size(), " offsets for ", count, " handles");
  }
  for (size_t i = 0; i < op_.handles.size(); ++i) {
    const auto found = turn.handles().Find(op_.handles[i]);
    Buffer* const buffer = found.ok() ? *found : nullptr;
    // Also after an error: what a failed run would have written is poisoned.
    state.bound.push_back(buffer);
    if (!status.ok()) continue;
    if (buffer == nullptr) {
      status = NotFound("run: slot ", i, ": unknown handle ", op_.handles[i]);
    } else if (!buffer->Poison().ok() &&
               (buffer->memory() == nullptr || !Replaces(graph, i, *buffer))) {
      status = buffer->Poison();
    } else {
      status = state.placement.PlaceSlot(i, graph, buffer->device());
      if (status.ok()) status = BindPart(i, graph, buffer->view(), state);
    }
  }
  TG_RETURN_IF_ERROR(status);
  return state.placement.Default(turn, graph);
}

// Sets compiled_, or the error; another step than kDone where it takes another thread.
Step RunAction::FindExecutable(Turn& turn, const StoredGraph& graph, absl::Status* status) {
  if (compiled_) return Step::kDone;
  Tenant& tenant = turn.tenant();
  const Placement& placement = turn.state<RunState>().placement;
  if (auto executable = tenant.engine->Find(graph.hash, placement.devices(), op_.variables)) {
    compiled_ = {.executable = std::move(executable), .cached = true, .compile_ns = 0};
    return Step::kDone;
  }
  if (turn.where() != OnThread::kCompiler) return Step::kNeedsCompiler;
  *status = tenant.TakeCompileTime(turn.env().clock->Ns());
  if (!status->ok()) return Step::kDone;
  const CompileTimer charged(&tenant);
  auto compiled = Compile(turn, graph, placement, op_.variables);
  *status = compiled.status();
  if (compiled.ok()) compiled_ = *std::move(compiled);
  return Step::kDone;
}

absl::Status RunAction::MayRun(const Turn& turn) const {
  // What a run keeps on a disk is written there.
  for (const Device* device : compiled_->executable->value_devices()) {
    TG_RETURN_IF_ERROR(turn.tenant().MayUse(*device, /*write=*/true));
  }
  const RunCost& cost = compiled_->executable->cost();
  TG_RETURN_IF_ERROR(Admit(cost, turn.env().limits.run));
  if (deadline_ns_ == INT64_MAX) return absl::OkStatus();
  // Where it runs on several devices, the one that it waits for longest has all of it.
  const double run_ns = cost.seconds * 1e9;
  double end_ns = run_ns;
  for (Device* const device : turn.state<RunState>().placement.devices()) {
    const FairQueue* const queue =
        device == nullptr ? nullptr : turn.env().devices->queue(*device, QueueKind::kCompute);
    if (queue == nullptr) continue;
    const WorkTerms terms{.priority = static_cast<int>(op_.priority), .deadline_ns = deadline_ns_};
    end_ns = std::max(end_ns, queue->PredictEnd(*turn.tenant().share, terms, run_ns));
  }
  return AdmitDeadline(deadline_ns_ - turn.env().clock->Ns(), run_ns, end_ns);
}

// Collects the points that the run waits for. Not null: what it has to wait for before it is
// submitted.
std::shared_ptr<HeldRead> RunAction::CollectWaits(const StoredGraph& graph, RunState& state) {
  for (size_t i = 0; i < state.bound.size(); ++i) {
    const SlotEffect effect = i < graph.slots.size() ? graph.slots[i] : SlotEffect{};
    Buffer& buffer = *state.bound[i];
    if (buffer.last_write().timeline && !Replaces(graph, i, buffer)) {
      state.waits.push_back(buffer.last_write());
    }
    if (!effect.written) continue;
    if (auto held = buffer.held_read()) return held;
    for (const TimelinePoint& read : buffer.copied_reads()) state.waits.push_back(read);
  }
  return nullptr;
}

Step RunAction::Do(Turn& turn) {
  const auto found = FindGraph(turn.tenant(), op_.hash);
  if (!found.ok()) return turn.Fail(found.status());
  const StoredGraph& graph = **found;
  RunState& state = turn.state<RunState>();
  const BoundWhileHere bound(state);
  const int64_t begun = turn.trace() == nullptr ? 0 : turn.trace()->Now();
  absl::Status status = Bind(turn, graph);
  if (status.ok()) status = cancellation_->Check();
  if (status.ok() && op_.search && !turn.tenant().engine->searches()) {
    status = FailedPrecondition(
        "run: this server does not search for faster kernels; start it with --search-seconds, or "
        "ask for no search");
  }
  for (const Device* device : state.placement.devices()) {
    if (status.ok() && device != nullptr) status = turn.env().devices->CheckTakesWork(*device);
  }
  if (!status.ok()) return Fail(turn, graph, status);
  if (const Step step = FindExecutable(turn, graph, &status); step != Step::kDone) return step;
  if (status.ok()) status = MayRun(turn);
  if (!status.ok()) return Fail(turn, graph, status);

  auto& in_flight = state.in_flight;
  while (!in_flight.empty() && IsReached(in_flight.front())) in_flight.pop_front();
  if (static_cast<int64_t>(in_flight.size()) >= turn.env().limits.runs_in_flight) {
    return turn.Wait(in_flight.front());
  }
  if (auto held = CollectWaits(graph, state)) return turn.Wait(std::move(held));
  if (!device_time_) {
    const auto ns = static_cast<int64_t>(compiled_->executable->cost().seconds * 1e9);
    auto taken = turn.tenant().TakeDeviceTime(ns, turn.env().clock->Ns());
    if (!taken.ok()) return Fail(turn, graph, taken.status());
    device_time_ = *std::move(taken);
  }
  submitted_ns_ = turn.env().clock->Ns();
  if (turn.trace() != nullptr) turn.trace()->Add("admit", begun, submitted_ns_);
  return Submit(turn, graph);
}

Step RunAction::Submit(Turn& turn, const StoredGraph& graph) {
  RunState& state = turn.state<RunState>();
  auto traced = NewTrace(turn);
  if (!traced.ok()) return Fail(turn, graph, traced.status());
  const auto taken = std::make_shared<DeviceTime>();
  taken->ended_slice = turn.CountLater(Metric::kRunNs);
  if (turn.trace() != nullptr) {
    taken->trace_high = turn.trace()->context().high;
    taken->trace_low = turn.trace()->context().low;
  }
  QueuesForRun queues(turn.queues().get(), op_.priority, deadline_ns_, taken);
  const auto submit = [&] {
    return compiled_->executable->Submit(
        state.views, state.waits,
        *traced == nullptr ? nullptr : std::shared_ptr<RunTrace>(*traced, &(*traced)->trace),
        cancellation_, queues);
  };
  auto point = submit();
  if (absl::IsResourceExhausted(point.status()) && !state.in_flight.empty()) {
    return turn.Wait(state.in_flight.front());  // its end gives back what it holds; then once more
  }
  if (absl::IsResourceExhausted(point.status()) && !waited_) {
    waited_ = true;
    turn.tenant().engine->ReleaseMemory();
    // Likewise, if it is others' runs that hold it.
    TimelinePoint busy = BusyDevice(turn.env(), state.placement);
    if (!IsReached(busy)) return turn.Wait(std::move(busy), /*others=*/true);
    point = submit();
  }
  if (!point.ok()) return Fail(turn, graph, point.status());
  Started(turn, graph, *point, taken, *std::move(traced));
  return Step::kDone;
}

// Null unless the run is to be traced. A trace is held until its answer is sent, so a session may
// have one: a client that does not read its answers holds no more.
absl::StatusOr<std::shared_ptr<TracedRun>> RunAction::NewTrace(const Turn& turn) const {
  if (!op_.trace) return nullptr;
  if (op_.quiet)
    return InvalidArgument(
        "run: quiet and trace exclude each other, because a quiet run has no answer");
  if (!turn.state<RunState>().traced.expired()) {
    return ResourceExhausted(
        "run: the trace of an earlier run of this session has not been sent yet; wait for its "
        "answer");
  }
  auto traced = std::make_shared<TracedRun>();
  traced->most_events = turn.env().limits.trace_events;
  traced->submitted_ns = SteadyNs();
  return traced;
}

void RunAction::Started(Turn& turn, const StoredGraph& graph, const TimelinePoint& point,
                        std::shared_ptr<DeviceTime> taken, std::shared_ptr<TracedRun> traced) {
  RunState& state = turn.state<RunState>();
  if (op_.search) turn.tenant().engine->Search(*compiled_->executable, turn.tenant().share);
  turn.Count(Metric::kRuns);
  if (compiled_->cached) turn.Count(Metric::kRunsCached);
  const TimelinePoint transfers = EndOfTransfers(state.placement, point);
  for (size_t i = 0; i < state.bound.size(); ++i) {
    state.bound[i]->UsedBy(point);
    if (transfers.timeline) state.bound[i]->ReadUntil(transfers);
    if (i < graph.slots.size() && graph.slots[i].written) state.bound[i]->WrittenBy(point);
  }
  state.in_flight.push_back(point);
  RunResult result{.cached = compiled_->cached,
                   .kernels = static_cast<uint32_t>(compiled_->executable->kernels().size()),
                   .compile_ns = compiled_->compile_ns,
                   .traced = nullptr};
  if (traced != nullptr) {
    traced->executable = compiled_->executable;
    state.traced = traced;
  }
  auto ended = [answer = turn.Later(op_.quiet, cancellation_), result, arrived = arrived_ns_,
                trace = turn.TakeTrace(), asked = submitted_ns_, predicted = device_time_.ns(),
                taken = std::move(taken), traced = std::move(traced),
                executable = compiled_->executable](const absl::Status& status) mutable {
    const int64_t ns = taken->all_ns();
    answer.tenant().device_time->Correct(predicted, ns);
    answer.tenant().engine->Ran(*executable, ns, answer.tenant().share);
    result.device_ns = static_cast<uint64_t>(ns);
    const int64_t latency = answer.env().clock->Ns() - arrived;
    if (trace == nullptr) {
      answer.tenant().run_latency.Observe(latency);
    } else {
      answer.tenant().run_latency.ObserveTraced(latency, taken->trace_high, taken->trace_low);
    }
    if (trace != nullptr) {
      trace->Note(status);
      if (const int64_t first = taken->first_ns; first != 0) {
        trace->Add("schedule", asked, std::max(first, asked));
        trace->Add("run", std::max(first, asked), std::max<int64_t>(taken->last_ns, asked));
      }
      trace->End();
    }
    if (traced != nullptr) traced->ended_ns = SteadyNs();
    result.traced = std::move(traced);
    answer.Give(status, MakeResult(std::move(result)));
  };
  device_time_.Keep();
  if (point.timeline == nullptr) {
    ended(absl::OkStatus());
  } else {
    point.timeline->OnReached(point.value, std::move(ended));
  }
}

}  // namespace

std::unique_ptr<Action> MakeAction(RunOp op) { return std::make_unique<RunAction>(std::move(op)); }

}  // namespace telegrad
