// A session and the streams that serve it, one after another. Answers of a resumable session are
// kept until the client acknowledges them, so that the next stream can repeat those that were lost.
// Operations are recognized by their ids, so that none is executed twice.
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/session/session.h"

namespace telegrad {
namespace {

// Memory of any kept answer, with its parts of fixed size.
constexpr int64_t kKeptAnswer = 512;

}  // namespace

std::shared_ptr<AnswerSink> Session::Attach(std::shared_ptr<AnswerSink> sink, uint64_t id,
                                            OpenResult opened, uint64_t acknowledged) {
  std::vector<Kept> forgotten;  // go without the lock
  const MutexLock lock(mutex_);
  std::shared_ptr<AnswerSink> before = std::exchange(sink_, std::move(sink));
  RenewLocked();
  ForgetLocked(acknowledged, &forgotten);
  opened.last_op_id = last_operation_;
  sink_->OnAnswer({.id = id, .status = {}, .result = MakeResult(std::move(opened))});
  for (const Kept& kept : kept_) sink_->OnAnswer(kept.answer);
  return before;
}

bool Session::Detach(const AnswerSink& sink) {
  std::shared_ptr<AnswerSink> detached;  // goes without the lock
  const MutexLock lock(mutex_);
  if (sink_.get() != &sink) return false;
  detached.swap(sink_);
  if (terms_.resumable) ends_at_ = env_.clock->Ns() + terms_.grace_ns;
  return true;
}

// False if the stream is attached no more, or if the operation was taken before.
bool Session::TakeLocked(const AnswerSink& from, uint64_t id) {
  if (sink_.get() != &from) return false;
  RenewLocked();
  if (id <= last_operation_) return false;
  last_operation_ = id;
  Count(Metric::kOperations, 1);
  return true;
}

void Session::Cancel(const AnswerSink& from, uint64_t id, uint64_t first, uint64_t last) {
  const auto meant = [&](uint64_t other) { return first <= other && other <= last; };
  {
    const MutexLock lock(mutex_);
    if (!TakeLocked(from, id)) return;
    for (Queued& queued : queue_) queued.cancelled |= meant(queued.operation.id);
    for (const SlotRef& slot : slots_) {
      if (slot->cancellation != nullptr && meant(slot->answer.id)) slot->cancellation->Cancel();
    }
    if (running_ != 0 && meant(running_)) {
      if (running_cancellation_ != nullptr) running_cancellation_->Cancel();
      if (budget_ != nullptr) budget_->Cancel();
    }
    // What it waits for may be far away, and is of no importance to it now: unless its bytes are on
    // their way already.
    if (!blocked_ || !queue_.front().cancelled) return;
    if (queue_.front().operation.action->committed()) return;
    ++arming_;
    blocked_ = false;
  }
  Drain(OnThread::kReader);
}

void Session::Acknowledge(uint64_t id) {
  std::vector<Kept> forgotten;  // go without the lock
  const MutexLock lock(mutex_);
  RenewLocked();
  ForgetLocked(id, &forgotten);
}

void Session::Renew() {
  const MutexLock lock(mutex_);
  RenewLocked();
}

void Session::RenewLocked() {
  if (terms_.resumable) ends_at_ = env_.clock->Ns() + terms_.lease_ns;
}

int64_t Session::EndsAt() const {
  const MutexLock lock(mutex_);
  return ends_at_;
}

uint64_t Session::last_operation() const {
  const MutexLock lock(mutex_);
  return last_operation_;
}

void Session::EmitLocked(std::vector<SlotRef>* emitted) {
  size_t ended = 0;
  while (ended < slots_.size() && slots_[ended]->done) ++ended;
  // First, so that who has the answer finds that the operation is no longer charged.
  if (ended > 0) EndedLocked(static_cast<int64_t>(ended));
  for (; ended > 0; --ended) {
    const SlotRef& slot = emitted->emplace_back(std::move(slots_.front()));
    slots_.pop_front();
    const bool ok = slot->answer.status.ok();
    if (!ok) Count(Metric::kOperationErrors, 1);
    if (slot->quiet && ok) continue;
    if (slot->kept) kept_.push_back(*std::exchange(slot->kept, std::nullopt));
    if (sink_) sink_->OnAnswer(std::move(slot->answer));
  }
}

// What is kept of an answer for repetition, within the session's limit of host memory. Room is
// reserved before anything is copied, and all of it goes without the lock, as a copy takes long.
Session::Kept Session::Keep(const Answer& answer) const {
  const std::shared_ptr<Account>& account = tenant_->accounts.shared(Quota::kHostMemory);
  const std::shared_ptr<const Result>& result = answer.result;
  const int64_t bytes = static_cast<int64_t>(answer.status.message().size()) +
                        (result == nullptr ? 0 : result->kept_bytes());
  Kept kept{.answer = {.id = answer.id, .status = answer.status}};
  std::optional<Reservation> of_session = Reservation::Try(kept_bytes_, bytes), of_tenant;
  if (of_session) of_tenant = Reservation::Try(account, bytes);
  if (of_tenant && result != nullptr) kept.answer.result = result->Kept(result);
  if (of_tenant && (result == nullptr) == (kept.answer.result == nullptr)) {
    kept.of_session = *std::move(of_session);
    kept.of_tenant = *std::move(of_tenant);
  } else {
    kept.answer.status = absl::AbortedError(
        "the stream broke before the client had received all of the answer, which is too large to "
        "be kept; request it again");
  }
  kept.always_paid = Reservation::Charge(account, kKeptAnswer);
  return kept;
}

void Session::ForgetLocked(uint64_t acknowledged, std::vector<Kept>* forgotten) {
  while (!kept_.empty() && kept_.front().answer.id <= acknowledged) {
    forgotten->push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
}

}  // namespace telegrad
