// The pipeline. Operations wait in a queue. A thread that submits an operation, or that reports an
// event which the front waits for, becomes the drainer and executes operations from the front until
// the queue is empty or its front has to wait. There is one drainer at a time, so that buffers need
// no lock; the mutex guards only the queue and the answers. An operation that has to wait goes back
// to the front and is executed again from its start when what it waits for has happened.
//
// The drainer may be the thread that reads the stream, a device's thread that reports the end of a
// run (the fastest start of the next operation, but long work is not allowed there), a worker, or a
// compile thread.
#include "server/session/session.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// The upper bound of the memory of a waiting operation for each byte of its message: an empty name
// has two bytes there and is a string here. Operations up to kSmallHead are not counted.
constexpr int64_t kBytesOfHead = 32, kSmallHead = 1024;

}  // namespace

HeldRead::~HeldRead() {
  if (released_) released_();
}

void HeldRead::OnReleased(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  released_.swap(callback);  // the one before goes without the lock
}

Session::Session(const Environment& env, std::shared_ptr<Tenant> tenant, SessionTerms terms,
                 std::shared_ptr<AnswerSink> sink, Reservation place, Reservation memory)
    : env_(env),
      tenant_(std::move(tenant)),
      terms_(std::move(terms)),
      queues_(std::make_shared<SessionQueues>(env.devices, tenant_->share)),
      sink_(std::move(sink)),
      place_(std::move(place)),
      memory_(std::move(memory)),
      transfers_(env.limits, queues_, env.metrics, tenant_->accounts.shared(Quota::kHostStaging)) {
  RenewLocked();
  env_.metrics->Add(Metric::kSessions);
  env_.metrics->Add(Metric::kSessionsOpened);
  tenant_->Enter();
}

Session::~Session() {
  Close();
  tenant_->Leave();
}

absl::Status Session::Submit(const AnswerSink& from, Operation operation) {
  {
    Transfers::Leftovers leftovers;  // go without the lock
    std::lock_guard lock(mutex_);
    if (!TakeLocked(from, operation.id)) return absl::OkStatus();
    if (const auto kept = static_cast<int64_t>(kept_.size()); kept > env_.limits.unacknowledged) {
      return ResourceExhausted("the client has acknowledged none of ", kept,
                               " answers; unacknowledged is limited to ",
                               env_.limits.unacknowledged);
    }
    Queued queued;
    if (const auto* write = std::get_if<WriteOp>(&operation.op)) {
      queued.staged = write->payload ? write->payload->size() : 0;
    } else if (const auto* import = std::get_if<ImportOp>(&operation.op)) {
      queued.staged = import->payload ? import->payload->size() : 0;
    }
    if (operation.head_bytes > kSmallHead) queued.staged += operation.head_bytes * kBytesOfHead;
    if (const auto* run = std::get_if<RunOp>(&operation.op)) {
      queued.arrived_ns = env_.clock->Ns();
      if (run->timeout_ms != 0) {
        queued.deadline_ns = queued.arrived_ns + run->timeout_ms * 1'000'000;
      }
      queued.cancellation =
          std::make_shared<Cancellation>(cancellation_, env_.clock, queued.deadline_ns);
    }
    queued.operation = std::move(operation);
    NameTransfer(queued, &leftovers);
    ++under_way_;
    tenant_->accounts[Quota::kOperations].Charge(1);
    if (queued.staged > 0) {
      staged_ += queued.staged;
      tenant_->accounts[Quota::kHostStaging].Charge(queued.staged);
      env_.metrics->Add(Metric::kStagedBytes, queued.staged);
    }
    queue_.push_back(std::move(queued));
  }
  Drain(Where::kReader);
  return absl::OkStatus();
}

bool Session::Congested() const {
  std::lock_guard lock(mutex_);
  return staged_ > env_.limits.staged_bytes ||
         static_cast<int64_t>(queue_.size()) > env_.limits.queued_operations ||
         static_cast<int64_t>(slots_.size()) > env_.limits.unanswered ||
         (under_way_ > 0 && tenant_->accounts[Quota::kOperations].full()) ||
         (staged_ > 0 && tenant_->accounts[Quota::kHostStaging].full());
}

bool Session::Idle() const {
  std::lock_guard lock(mutex_);
  return queue_.empty() && slots_.empty() && !draining_;
}

void Session::Close(const absl::Status& why) {
  std::deque<Queued> queue;
  std::deque<SlotRef> slots;
  std::shared_ptr<AnswerSink> sink;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Buffer>> buffers;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (budget_ != nullptr) budget_->Cancel();
    cancellation_->Cancel();
    queue.swap(queue_);
    slots.swap(slots_);
    sink.swap(sink_);
    if (!draining_) buffers.swap(buffers_);
    EndedLocked(under_way_);
    ReleaseStagedLocked(staged_);
    place_ = Reservation();
    env_.metrics->Add(Metric::kSessions, -1);
  }
  transfers_.Close(absl::CancelledError("the session has ended"));
  if (sink) sink->OnDetached(why);
}

void Session::Drain(Where where) {
  std::unique_lock lock(mutex_);
  if (draining_ || blocked_) return;
  draining_ = true;
  bool progress = false;
  while (!closed_ && !queue_.empty()) {
    Queued queued = std::move(queue_.front());
    queue_.pop_front();
    running_ = queued.operation.id;
    running_cancellation_ = queued.cancellation;
    lock.unlock();
    Block block;
    has_slot_ = false;
    const std::shared_ptr<OperationTrace> trace = queued.operation.trace;
    if (trace != nullptr && !std::exchange(queued.begun, true)) {
      trace->Add("queue", trace->begin_ns(), trace->Now());
    }
    const Step step = Execute(queued, where, &block);
    if (trace != nullptr && step == Step::kDone && !queued.operation.trace_goes_on) trace->End();
    lock.lock();
    running_ = 0;
    running_cancellation_ = nullptr;
    if (closed_) break;
    if (step == Step::kDone) {
      ReleaseStagedLocked(queued.staged);
      if (!has_slot_) EndedLocked(1);
      progress = true;
      continue;
    }
    queue_.push_front(std::move(queued));
    draining_ = false;
    blocked_ = true;
    const uint64_t arming = ++arming_;
    const std::shared_ptr<AnswerSink> sink = progress ? sink_ : nullptr;
    lock.unlock();
    if (sink) sink->OnProgress();  // there may be room again, however long this one waits
    Arm(step, block, arming);
    return;
  }
  draining_ = false;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Buffer>> buffers;
  if (closed_) buffers.swap(buffers_);
  const std::shared_ptr<AnswerSink> sink = sink_;
  lock.unlock();
  if (sink) sink->OnProgress();
}

void Session::Arm(Step step, const Block& block, uint64_t arming) {
  auto self = shared_from_this();
  if (step == Step::kNeedsWorker) {
    env_.workers->Post([self, arming] { self->Unblock(Where::kWorker, arming); }, tenant_->share);
  } else if (step == Step::kNeedsCompiler) {
    env_.compilers->Post([self, arming] { self->Unblock(Where::kCompiler, arming); },
                         tenant_->share);
  } else if (block.held) {
    // The last reference may go inside the transport, which is no place to do anything.
    block.held->OnReleased([self, arming] {
      self->env_.workers->Post([self, arming] { self->Unblock(Where::kWorker, arming); },
                               self->tenant_->share);
    });
  } else if (block.others) {
    block.point.timeline->OnReached(block.point.value, [self, arming](const absl::Status&) {
      self->env_.workers->Post([self, arming] { self->Unblock(Where::kWorker, arming); },
                               self->tenant_->share);
    });
  } else {
    block.point.timeline->OnReached(block.point.value, [self, arming](const absl::Status&) {
      self->Unblock(Where::kDeviceThread, arming);
    });
  }
}

void Session::Unblock(Where where, uint64_t arming) {
  {
    std::lock_guard lock(mutex_);
    if (arming != arming_) return;
    blocked_ = false;
  }
  Drain(where);
}

Session::Step Session::Execute(Queued& queued, Where where, Block* block) {
  const uint64_t id = queued.operation.id;
  auto& op = queued.operation.op;
  if (queued.cancelled && queued.uploading) {
    queued.upload->End(absl::CancelledError("cancelled before all of its bytes had arrived"));
  } else if (queued.cancelled && !queued.copied) {
    return Refuse(id, queued, absl::CancelledError("cancelled before it began"));
  }
  if (auto* alloc = std::get_if<AllocOp>(&op)) return Do(id, *alloc, where);
  if (auto* free = std::get_if<FreeOp>(&op)) return Do(id, *free);
  if (auto* write = std::get_if<WriteOp>(&op)) return Do(id, *write, queued, where, block);
  if (auto* read = std::get_if<ReadOp>(&op)) return Do(id, *read, queued, where, block);
  if (auto* copy = std::get_if<CopyOp>(&op)) return Do(id, *copy, where, block);
  if (auto* has = std::get_if<HasOp>(&op)) return Do(id, *has);
  if (auto* put = std::get_if<PutOp>(&op)) return Do(id, *put, where);
  if (auto* import = std::get_if<ImportOp>(&op)) return Do(id, *import, queued, where, block);
  if (auto* run = std::get_if<RunOp>(&op)) return Do(id, *run, queued, where, block);
  return Reply(id, {});  // SyncOp
}

void Session::EndedLocked(int64_t operations) {
  under_way_ -= operations;
  tenant_->accounts[Quota::kOperations].Release(operations);
}

void Session::ReleaseStagedLocked(int64_t bytes) {
  if (bytes == 0) return;
  staged_ -= bytes;
  tenant_->accounts[Quota::kHostStaging].Release(bytes);
  env_.metrics->Add(Metric::kStagedBytes, -bytes);
}

// It fails, and with it whatever was to depend on it.
Session::Step Session::Refuse(uint64_t id, Queued& queued, const absl::Status& error) {
  auto& op = queued.operation.op;
  if (auto* alloc = std::get_if<AllocOp>(&op); alloc && CheckAlloc(*alloc).ok()) {
    Poisoned(alloc->handle, error);
  }
  const auto* read = std::get_if<ReadOp>(&op);
  if (read != nullptr && queued.transfer.ok()) transfers_.Finish(read->transfer);
  if (auto* write = std::get_if<WriteOp>(&op)) {
    if (queued.upload != nullptr) transfers_.Finish(write->transfer);
    const auto buffer = FindBuffer(write->handle);
    if (buffer.ok() && (*buffer)->memory() != nullptr) (*buffer)->SetPoison(error);
  }
  if (auto* copy = std::get_if<CopyOp>(&op)) {
    const auto buffer = FindBuffer(copy->to);
    if (buffer.ok() && (*buffer)->memory() != nullptr) (*buffer)->SetPoison(error);
  }
  if (auto* run = std::get_if<RunOp>(&op)) {
    queued.device_time = {};
    if (const auto graph = FindGraph(run->hash); graph.ok()) {
      Bind(*run, **graph).IgnoreError();  // only to know what it would have written
      return FailRun(id, **graph, error);
    }
  }
  return Fail(id, error);
}

Session::SlotRef Session::NewSlot(uint64_t id, bool quiet,
                                  std::shared_ptr<Cancellation> cancellation) {
  auto slot = std::make_shared<Slot>();
  slot->quiet = quiet;
  slot->cancellation = std::move(cancellation);
  slot->answer.id = id;
  has_slot_ = true;
  std::lock_guard lock(mutex_);
  if (!closed_) slots_.push_back(slot);
  return slot;
}

// The slot's answer is complete; it and those that waited behind it go out.
void Session::Finish(const SlotRef& slot) {
  std::shared_ptr<AnswerSink> sink;
  {
    std::lock_guard lock(mutex_);
    slot->done = true;
    EmitLocked();
    sink = sink_;
  }
  if (sink) sink->OnProgress();
}

Session::Step Session::Reply(uint64_t id, Answer answer) {
  const SlotRef slot = NewSlot(id);
  answer.id = id;
  slot->answer = std::move(answer);
  Finish(slot);
  return Step::kDone;
}

Session::Step Session::Fail(uint64_t id, absl::Status error) {
  Answer answer;
  answer.status = Clipped(std::move(error));
  return Reply(id, std::move(answer));
}

}  // namespace telegrad
