// The mailbox. Operations wait in a queue. A thread that submits an operation, or that reports an
// event which the front waits for, becomes the drainer and gives the front its turn until the queue
// is empty or its front has to wait. There is one drainer at a time, so that buffers need no lock;
// the mutex guards only the queue and the answers. An operation that has to wait goes back to the
// front and has its turn again from the start when what it waits for has happened.
//
// The drainer may be the thread that reads the stream, a device's thread that reports the end of a
// run (the fastest start of the next operation, but long work is not allowed there), a worker, or a
// compile thread.
#include "server/session/session.h"

#include <optional>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

// The upper bound of the memory of a waiting operation for each byte of its message: an empty name
// has two bytes there and is a string here. Operations up to kSmallHead are not counted.
constexpr int64_t kBytesOfHead = 32, kSmallHead = 1024;

}  // namespace

Session::Session(const Environment& env, std::shared_ptr<Tenant> tenant, SessionTerms terms,
                 std::shared_ptr<AnswerSink> sink, Reservation place, Reservation memory)
    : env_(env),
      tenant_(std::move(tenant)),
      terms_(std::move(terms)),
      queues_(std::make_shared<SessionQueues>(env.devices, tenant_->share)),
      memory_(std::move(memory)),
      opened_ns_(env.clock->Ns()),
      counter_(
          [server = env.metrics, of_tenant = tenant_, own = counted_](Metric metric, int64_t n) {
            server->Add(metric, n);
            of_tenant->metrics.Add(metric, n);
            own->Add(metric, n);
          }),
      kept_bytes_(std::make_shared<Account>("kept_bytes", env.limits.kept_bytes, "")),
      sink_(std::move(sink)),
      place_(std::move(place)),
      transfers_(env.limits, queues_, counter_, tenant_->accounts.shared(Quota::kHostStaging)),
      handles_(env, *tenant_) {
  {
    const MutexLock lock(mutex_);
    RenewLocked();
  }
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
    const MutexLock lock(mutex_);
    if (!TakeLocked(from, operation.id)) return absl::OkStatus();
    if (const auto kept = static_cast<int64_t>(kept_.size()); kept > env_.limits.unacknowledged) {
      return ResourceExhausted("the client has acknowledged none of ", kept,
                               " answers; unacknowledged is limited to ",
                               env_.limits.unacknowledged);
    }
    Queued queued;
    if (operation.action != nullptr) {
      queued.staged = operation.action->staged_bytes();
      operation.action->Arrive({env_, transfers_, &leftovers, cancellation_});
      if (operation.action->is_request()) {
        queued.refused = tenant_->TakeRequest(env_.clock->Ns());
      }
    }
    if (operation.head_bytes > kSmallHead) queued.staged += operation.head_bytes * kBytesOfHead;
    queued.operation = std::move(operation);
    ++under_way_;
    tenant_->accounts[Quota::kOperations].Charge(1);
    if (queued.staged > 0) {
      staged_ += queued.staged;
      tenant_->accounts[Quota::kHostStaging].Charge(queued.staged);
      env_.metrics->Add(Metric::kStagedBytes, queued.staged);
    }
    queue_.push_back(std::move(queued));
  }
  Drain(OnThread::kReader);
  return absl::OkStatus();
}

bool Session::Congested() const {
  const MutexLock lock(mutex_);
  return staged_ > env_.limits.staged_bytes ||
         static_cast<int64_t>(queue_.size()) > env_.limits.queued_operations ||
         static_cast<int64_t>(slots_.size()) > env_.limits.unanswered ||
         (under_way_ > 0 && tenant_->accounts[Quota::kOperations].full()) ||
         (staged_ > 0 && tenant_->accounts[Quota::kHostStaging].full());
}

bool Session::Idle() const {
  const MutexLock lock(mutex_);
  return queue_.empty() && slots_.empty() && !draining_;
}

void Session::Close(const absl::Status& why) {
  std::deque<Queued> queue;
  std::deque<SlotRef> slots;
  std::shared_ptr<AnswerSink> sink;
  Handles handles(env_, *tenant_);
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (budget_ != nullptr) budget_->Cancel();
    cancellation_->Cancel();
    queue.swap(queue_);
    slots.swap(slots_);
    sink.swap(sink_);
    if (!draining_) handles_.TakeAll(&handles);
    EndedLocked(under_way_);
    ReleaseStagedLocked(staged_);
    place_ = Reservation();
    env_.metrics->Add(Metric::kSessions, -1);
  }
  transfers_.Close(absl::CancelledError("the session has ended"));
  if (sink) sink->OnDetached(why);
}

void Session::Drain(OnThread where) {
  // Of the operation at hand. They go without the lock: with them may go memory, an executable or
  // another session, and what follows from that may ask this session something.
  std::optional<Queued> queued;
  std::optional<Turn> turn;
  ReleasableLock lock(mutex_);
  if (draining_ || blocked_) return;
  draining_ = true;
  bool progress = false;
  while (!closed_ && !queue_.empty()) {
    queued = std::move(queue_.front());
    queue_.pop_front();
    running_ = queued->operation.id;
    if (queued->operation.action != nullptr) {
      running_cancellation_ = queued->operation.action->cancellation();
    }
    lock.unlock();
    turn.emplace(*this, queued->operation, where);
    if (turn->trace() != nullptr && !std::exchange(queued->begun, true)) {
      turn->trace()->Add("queue", turn->trace()->begin_ns(), turn->trace()->Now());
    }
    // A process of this tenant may not answer, which is not to hold up a thread that others need.
    const bool stays = turn->long_work() || !tenant_->asks_process();
    const Step step = stays ? Execute(*queued, *turn) : Step::kNeedsWorker;
    if (turn->trace() != nullptr && step == Step::kDone) turn->trace()->End();
    const bool answers = turn->answers_;
    const int64_t staged = queued->staged;
    if (step == Step::kDone) {
      turn.reset();
      queued.reset();
    }
    lock.lock();
    running_ = 0;
    running_cancellation_ = nullptr;
    if (closed_) break;
    if (step == Step::kDone) {
      ReleaseStagedLocked(staged);
      if (!answers) EndedLocked(1);
      progress = true;
      continue;
    }
    queue_.push_front(*std::move(queued));
    draining_ = false;
    blocked_ = true;
    const uint64_t arming = ++arming_;
    const std::shared_ptr<AnswerSink> sink = progress ? sink_ : nullptr;
    lock.unlock();
    if (sink) sink->OnProgress();  // there may be room again, however long this one waits
    Arm(step, *turn, arming);
    return;
  }
  draining_ = false;
  Handles handles(env_, *tenant_);
  if (closed_) handles_.TakeAll(&handles);
  const std::shared_ptr<AnswerSink> sink = sink_;
  lock.unlock();
  if (sink) sink->OnProgress();
}

void Session::Arm(Step step, const Turn& turn, uint64_t arming) {
  auto self = shared_from_this();
  const auto on_worker = [self, arming] {
    self->env_.workers->Post([self, arming] { self->Unblock(OnThread::kWorker, arming); },
                             self->tenant_->share);
  };
  if (step == Step::kNeedsWorker) {
    on_worker();
  } else if (step == Step::kNeedsCompiler) {
    env_.compilers->Post([self, arming] { self->Unblock(OnThread::kCompiler, arming); },
                         tenant_->share);
  } else if (turn.held_) {
    // Not over the callback of a later wait, if this one has ended by a cancellation. The last
    // reference may go inside the transport, which is no place to do anything.
    const MutexLock lock(mutex_);
    if (arming == arming_) turn.held_->OnReleased(on_worker);
  } else if (turn.others_) {
    turn.point_.timeline->OnReached(turn.point_.value,
                                    [on_worker](const absl::Status&) { on_worker(); });
  } else {
    turn.point_.timeline->OnReached(turn.point_.value, [self, arming](const absl::Status&) {
      self->Unblock(OnThread::kDevice, arming);
    });
  }
}

void Session::Unblock(OnThread where, uint64_t arming) {
  {
    const MutexLock lock(mutex_);
    if (arming != arming_) return;
    blocked_ = false;
  }
  Drain(where);
}

Step Session::Execute(Queued& queued, Turn& turn) {
  Action* const action = queued.operation.action.get();
  if (queued.cancelled && (action == nullptr || !(action->Interrupt() || action->committed()))) {
    const absl::Status error = absl::CancelledError("cancelled before it began");
    return action == nullptr ? turn.Fail(error) : action->Refuse(turn, error);
  }
  if (!queued.refused.ok()) return action->Refuse(turn, queued.refused);
  return action == nullptr ? turn.Reply() : action->Do(turn);
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

Session::SlotRef Session::NewSlot(uint64_t id, bool quiet,
                                  std::shared_ptr<Cancellation> cancellation) {
  auto slot = std::make_shared<Slot>();
  slot->quiet = quiet;
  slot->cancellation = std::move(cancellation);
  slot->answer.id = id;
  const MutexLock lock(mutex_);
  if (!closed_) slots_.push_back(slot);
  return slot;
}

// The slot's answer is complete; it and those that waited behind it go out.
void Session::Finish(const SlotRef& slot) {
  std::shared_ptr<AnswerSink> sink;
  std::vector<SlotRef> emitted;  // go without the lock
  const bool answers = !slot->quiet || !slot->answer.status.ok();
  if (terms_.resumable && answers) slot->kept = Keep(slot->answer);
  {
    const MutexLock lock(mutex_);
    slot->done = true;
    EmitLocked(&emitted);
    sink = sink_;
  }
  if (sink) sink->OnProgress();
}

}  // namespace telegrad
