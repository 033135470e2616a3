// The operations of a session that are about graphs: Has, Put and Run.
//
// A run on one device is ordered behind the session's earlier runs there by its lane in the
// device's queue; its explicit waits only propagate their failures. A run on several devices also
// reads in copy queues, so the next writer of its buffers waits for it.
#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "server/session/session.h"

namespace telegrad {
namespace {

// True if the run leaves nothing in the buffer of what was there before, good or bad.
bool Replaces(const StoredGraph& graph, size_t slot, const Buffer& buffer) {
  return slot < graph.slots.size() && graph.slots[slot].replaced &&
         graph.slots[slot].bytes == buffer.bytes();
}

// A run on several devices reads buffers in queues behind which later runs are not ordered. Returns
// the point at which it has read them, which never fails; no point for a run on one device.
TimelinePoint EndOfTransfers(std::span<Device* const> devices, const TimelinePoint& run) {
  const Device* first = nullptr;
  bool several = false;
  for (const Device* device : devices) {
    several |= first != nullptr && device != nullptr && device != first;
    if (first == nullptr) first = device;
  }
  if (!several || run.timeline == nullptr) return {};
  const TimelinePoint read{std::make_shared<Timeline>(), 1};
  run.timeline->OnReached(run.value,
                          [timeline = read.timeline](const absl::Status&) { timeline->Signal(1); });
  return read;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const StoredGraph>> Session::FindGraph(std::string_view hash) {
  Digest digest;
  if (!Digest::FromBytes(hash, &digest)) {
    return InvalidArgument("expected a graph's hash of 32 bytes, got ", hash.size());
  }
  auto graph = tenant_->graphs.Find(digest);
  if (graph == nullptr) return NotFound("unknown graph ", digest.Hex(), "; put it first");
  return graph;
}

Session::Step Session::Do(uint64_t id, HasOp& op) {
  const auto graph = FindGraph(op.hash);
  if (!graph.ok() && !absl::IsNotFound(graph.status())) return Fail(id, graph.status());
  Answer answer;
  answer.result = HasResult{.has = graph.ok()};
  return Reply(id, std::move(answer));
}

Session::Step Session::Do(uint64_t id, PutOp& op, Where where) {
  if (where != Where::kCompiler) return Step::kNeedsCompiler;
  Budget budget(env_.limits.job);
  budget.SetShare(tenant_->share);
  const absl::Status allowed = tenant_->TakeCompileTime(env_.clock->Ns());
  if (!allowed.ok()) return Fail(id, allowed);
  const CompileTimer charged(tenant_.get());
  auto verified = op.decode(&budget);
  op.decode = nullptr;
  if (!verified.ok()) return Fail(id, verified.status());
  auto stored = tenant_->graphs.Put(*std::move(verified), op.bytes);
  if (!stored.ok()) return Fail(id, stored.status());
  Count(Metric::kGraphPuts);
  PutResult result{.hash = (*stored)->hash};
  if (op.compile && !(*stored)->has_variables) {  // these are specialized to each run's values
    // For the server's own devices. A graph that names more may still run where its buffers are.
    absl::Status placed = NameDevices(**stored, {});
    if (placed.ok()) placed = DefaultDevices(**stored);
    if (placed.ok()) {
      const auto compiled = Compile(**stored, {});
      placed = compiled.status();
      if (placed.ok()) result.cost = compiled->executable->cost();
    }
    if (!placed.ok() && !absl::IsNotFound(placed)) return Fail(id, placed);
  }
  Answer answer;
  answer.result = result;
  return Reply(id, std::move(answer));
}

absl::StatusOr<ExecutableCache::Result> Session::Compile(const StoredGraph& graph,
                                                         std::span<const VarValue> variables) {
  Budget budget(env_.limits.job);
  budget.SetShare(tenant_->share);
  {
    std::lock_guard lock(mutex_);
    if (closed_) return absl::CancelledError("the session has ended");
    budget_ = &budget;
  }
  auto result = tenant_->engine->Get(graph.hash, graph.graph, devices_, &budget, variables);
  tenant_->compile_time->Correct(0, budget.worked_ns());
  std::lock_guard lock(mutex_);
  budget_ = nullptr;
  return result;
}

// Which devices the graph's numbers mean: first as the request says, then as the slots that are
// bound say, then in the order of the server's list.
absl::Status Session::NameDevices(const StoredGraph& graph, std::span<const std::string> names) {
  const size_t numbers = graph.devices.empty() ? 0 : static_cast<size_t>(graph.devices.back()) + 1;
  devices_.assign(numbers, nullptr);
  for (const int64_t number : graph.devices) {
    const auto n = static_cast<size_t>(number);
    if (n >= names.size() || names[n].empty()) continue;
    TG_ASSIGN_OR_RETURN(Device * device, env_.devices->Find(names[n]));
    devices_[n] = tenant_->View(*device);
    TG_RETURN_IF_ERROR(tenant_->MayUse(*devices_[n], /*write=*/false));
  }
  return absl::OkStatus();
}

absl::Status Session::PlaceSlot(size_t slot, const StoredGraph& graph, Device* device) {
  const int64_t number = slot < graph.slots.size() ? graph.slots[slot].device : -1;
  if (number < 0) return absl::OkStatus();
  Device*& known = devices_[static_cast<size_t>(number)];
  if (known == nullptr) known = device;
  if (known == device) return absl::OkStatus();
  return InvalidArgument("run: slot ", slot, " is on ", device->name(),
                         ", but the graph has it on ", "device ", number, ", which is ",
                         known->name(), " by the request or the slots before it");
}

absl::Status Session::DefaultDevices(const StoredGraph& graph) {
  const auto& all = env_.devices->devices();
  for (const int64_t number : graph.devices) {
    const auto n = static_cast<size_t>(number);
    if (devices_[n] != nullptr) continue;
    if (n >= all.size()) {
      return NotFound("run: the graph names device ", number,
                      ", which neither the request nor a slot binds, and this server has ",
                      all.size(), " devices");
    }
    devices_[n] = tenant_->View(*all[n]);
  }
  // A graph of no device at all runs on the first that takes work.
  if (graph.devices.empty()) {
    TG_ASSIGN_OR_RETURN(Device * first, env_.devices->Find(""));
    devices_.assign(1, tenant_->View(*first));
  }
  return absl::OkStatus();
}

// Appends to views_ what a slot binds of a buffer: all of it, or the part that the request says.
absl::Status Session::BindPart(const RunOp& op, size_t slot, const StoredGraph& graph,
                               BufferView view) {
  if (!op.offsets.empty()) {
    const uint64_t offset = slot < op.offsets.size() ? op.offsets[slot] : 0;
    const int64_t bytes = slot < graph.slots.size() ? graph.slots[slot].bytes : 0;
    if (bytes > view.length || offset > static_cast<uint64_t>(view.length - bytes)) {
      return InvalidArgument("run: slot ", slot, ": ", bytes, " bytes at offset ", offset,
                             " do not fit into buffer ", op.handles[slot], ", which has ",
                             view.length);
    }
    view.offset += static_cast<int64_t>(offset);
    view.length = bytes;
  }
  views_.push_back(std::move(view));
  return absl::OkStatus();
}

// Fills bound_, views_ and devices_.
absl::Status Session::Bind(const RunOp& op, const StoredGraph& graph) {
  bound_.clear();
  views_.clear();
  const int64_t count = static_cast<int64_t>(op.handles.size());
  if (count > env_.limits.run_handles) {
    return ResourceExhausted("run of ", count, " handles; a graph has at most ",
                             env_.limits.run_handles);
  }
  absl::Status status = NameDevices(graph, op.devices);
  if (op.offsets.size() > op.handles.size()) {
    status = InvalidArgument("run: ", op.offsets.size(), " offsets for ", count, " handles");
  }
  for (size_t i = 0; i < op.handles.size(); ++i) {
    const auto found = FindBuffer(op.handles[i]);
    Buffer* buffer = found.ok() ? *found : nullptr;
    bound_.push_back(
        buffer);  // also after an error: what a failed run would have written is poisoned
    if (!status.ok()) continue;
    if (buffer == nullptr) {
      status = NotFound("run: slot ", i, ": unknown handle ", op.handles[i]);
    } else if (!buffer->Poison().ok() &&
               (buffer->memory() == nullptr || !Replaces(graph, i, *buffer))) {
      status = buffer->Poison();
    } else {
      status = PlaceSlot(i, graph, buffer->device());
      if (status.ok()) status = BindPart(op, i, graph, buffer->view());
    }
  }
  TG_RETURN_IF_ERROR(status);
  return DefaultDevices(graph);
}

// Whether one of the run's devices has work to end that may hold what the run needs.
bool Session::BusyDevice(Block* block) const {
  for (Device* const device : devices_) {
    if (device == nullptr) continue;
    FairQueue* const queue = env_.devices->queue(*device, QueueKind::kCompute);
    if (queue == nullptr) continue;
    *block = {.point = queue->Drained(), .held = nullptr, .others = true};
    if (!IsReached(block->point)) return true;
  }
  return false;
}

// Collects the points that the run waits for. False if it has to wait before it is submitted.
bool Session::MayOverwrite(const StoredGraph& graph, Block* block) {
  waits_.clear();
  for (size_t i = 0; i < bound_.size(); ++i) {
    const SlotEffect effect = i < graph.slots.size() ? graph.slots[i] : SlotEffect{};
    Buffer& buffer = *bound_[i];
    if (buffer.last_write().timeline && !Replaces(graph, i, buffer)) {
      waits_.push_back(buffer.last_write());
    }
    if (!effect.written) continue;
    if ((block->held = buffer.held_read()) != nullptr) return false;
    for (const TimelinePoint& read : buffer.copied_reads()) waits_.push_back(read);
  }
  return true;
}

Session::Step Session::Do(uint64_t id, RunOp& op, Queued& queued, Where where, Block* block) {
  const auto found = FindGraph(op.hash);
  if (!found.ok()) return Fail(id, found.status());
  const StoredGraph& graph = **found;
  OperationTrace* const trace = queued.operation.trace.get();
  const int64_t begun = trace == nullptr ? 0 : trace->Now();
  const auto fail = [&](const absl::Status& error) {
    queued.device_time = {};
    return FailRun(id, graph, error);
  };
  absl::Status status = Bind(op, graph);
  if (status.ok()) status = queued.cancellation->Check();
  for (const Device* device : devices_) {
    if (status.ok() && device != nullptr) status = env_.devices->CheckTakesWork(*device);
  }
  if (!status.ok()) return fail(status);

  if (!queued.compiled) {
    if (auto executable = tenant_->engine->Find(graph.hash, devices_, op.variables)) {
      queued.compiled = {.executable = std::move(executable), .cached = true, .compile_ns = 0};
    } else if (where != Where::kCompiler) {
      return Step::kNeedsCompiler;
    } else {
      status = tenant_->TakeCompileTime(env_.clock->Ns());
      if (!status.ok()) return fail(status);
      const CompileTimer charged(tenant_.get());
      auto compiled = Compile(graph, op.variables);
      if (trace != nullptr) trace->Add("compile", begun, trace->Now());
      if (!compiled.ok()) return fail(compiled.status());
      queued.compiled = *std::move(compiled);
    }
  }
  // What a run keeps on a disk is written there.
  for (const Device* device : queued.compiled->executable->value_devices()) {
    if (status.ok()) status = tenant_->MayUse(*device, /*write=*/true);
  }
  if (status.ok()) status = Admit(queued.compiled->executable->cost(), env_.limits.run);
  if (!status.ok()) return fail(status);
  while (!runs_.empty() && IsReached(runs_.front())) runs_.pop_front();
  if (static_cast<int64_t>(runs_.size()) >= env_.limits.runs_in_flight) {
    block->point = runs_.front();
    return Step::kBlocked;
  }
  if (!MayOverwrite(graph, block)) return Step::kBlocked;

  const auto traced = NewTrace(op);
  if (!traced.ok()) return fail(traced.status());
  if (!queued.device_time) {
    const auto ns = static_cast<int64_t>(queued.compiled->executable->cost().seconds * 1e9);
    auto taken = tenant_->TakeDeviceTime(ns, env_.clock->Ns());
    if (!taken.ok()) return fail(taken.status());
    queued.device_time = *std::move(taken);
  }
  queued.submitted_ns = env_.clock->Ns();
  if (trace != nullptr) trace->Add("admit", begun, queued.submitted_ns);
  const int64_t submitted = SteadyNs();
  const auto taken = std::make_shared<DeviceTime>();
  QueuesForRun queues(queues_.get(), op.priority, queued.deadline_ns, taken);
  const auto submit = [&] {
    return queued.compiled->executable->Submit(
        views_, waits_,
        *traced == nullptr ? nullptr : std::shared_ptr<RunTrace>(*traced, &(*traced)->trace),
        queued.cancellation, queues);
  };
  auto point = submit();
  if (absl::IsResourceExhausted(point.status()) && !runs_.empty()) {
    block->point = runs_.front();  // its end gives back what it holds; then once more
    return Step::kBlocked;
  }
  if (absl::IsResourceExhausted(point.status()) && !queued.waited) {
    queued.waited = true;
    tenant_->engine->ReleaseMemory();
    if (BusyDevice(block)) return Step::kBlocked;  // likewise, if it is others' runs that hold it
    point = submit();
  }
  if (!point.ok()) return fail(point.status());
  Started(id, op, queued, graph, *point, submitted, taken, *traced);
  return Step::kDone;
}

// Null unless the run is to be traced. A trace is held until its answer is sent, so a session may
// have one: a client that does not read its answers holds no more.
absl::StatusOr<std::shared_ptr<TracedRun>> Session::NewTrace(const RunOp& op) {
  if (!op.trace) return nullptr;
  if (op.quiet)
    return InvalidArgument(
        "run: quiet and trace exclude each other, because a quiet run has no answer");
  if (!traced_.expired()) {
    return ResourceExhausted(
        "run: the trace of an earlier run of this session has not been sent yet; wait for its "
        "answer");
  }
  auto traced = std::make_shared<TracedRun>();
  traced->most_events = env_.limits.trace_events;
  return traced;
}

void Session::Started(uint64_t id, const RunOp& op, Queued& queued, const StoredGraph& graph,
                      const TimelinePoint& point, int64_t submitted,
                      std::shared_ptr<DeviceTime> taken, std::shared_ptr<TracedRun> traced) {
  const ExecutableCache::Result& compiled = *queued.compiled;
  Count(Metric::kRuns);
  if (compiled.cached) Count(Metric::kRunsCached);
  const TimelinePoint transfers = EndOfTransfers(devices_, point);
  for (size_t i = 0; i < bound_.size(); ++i) {
    bound_[i]->UsedBy(point);
    if (transfers.timeline) bound_[i]->ReadUntil(transfers);
    if (i < graph.slots.size() && graph.slots[i].written) bound_[i]->WrittenBy(point);
  }
  runs_.push_back(point);
  const SlotRef slot = NewSlot(id, op.quiet, queued.cancellation);
  RunResult result{.cached = compiled.cached,
                   .kernels = static_cast<uint32_t>(compiled.executable->kernels().size()),
                   .compile_ns = compiled.compile_ns,
                   .traced = nullptr};
  if (traced != nullptr) {
    traced->executable = compiled.executable;
    traced->submitted_ns = submitted;
    traced_ = traced;
  }
  queued.operation.trace_goes_on = true;
  auto ended = [self = shared_from_this(), slot, result, arrived = queued.arrived_ns,
                trace = queued.operation.trace, asked = queued.submitted_ns,
                predicted = queued.device_time.ns(), taken = std::move(taken),
                traced = std::move(traced)](const absl::Status& status) mutable {
    const int64_t ns = taken->ns.load(std::memory_order_relaxed);
    self->tenant_->device_time->Correct(predicted, ns);
    result.device_ns = static_cast<uint64_t>(ns);
    self->Count(Metric::kRunNs, static_cast<int64_t>(result.device_ns));
    self->tenant_->run_latency.Observe(self->env_.clock->Ns() - arrived);
    if (const int64_t first = taken->first_ns; trace != nullptr) {
      if (first != 0) {
        trace->Add("schedule", asked, std::max(first, asked));
        trace->Add("run", std::max(first, asked), std::max<int64_t>(taken->last_ns, asked));
      }
      trace->End();
    }
    if (traced != nullptr) traced->ended_ns = SteadyNs();
    result.traced = std::move(traced);
    slot->answer.status = Clipped(status);
    if (status.ok()) slot->answer.result = std::move(result);
    self->Finish(slot);
  };
  queued.device_time.Keep();
  if (point.timeline == nullptr) {
    ended(absl::OkStatus());
  } else {
    point.timeline->OnReached(point.value, std::move(ended));
  }
}

// Fails a run that was not submitted: poisons the buffers that it would have written.
Session::Step Session::FailRun(uint64_t id, const StoredGraph& graph, const absl::Status& error) {
  for (size_t i = 0; i < bound_.size() && i < graph.slots.size(); ++i) {
    if (bound_[i] != nullptr && bound_[i]->memory() != nullptr && graph.slots[i].written) {
      bound_[i]->SetPoison(error);
    }
  }
  return Fail(id, error);
}

}  // namespace telegrad
