// A session: an ordered mailbox of operations that one client has pipelined, the buffers that it
// names by handles, and a lease. Operations take effect in order and none waits for more than it
// needs; what each of them does and waits for is its own business (server/operations).
//
// Answers are given in the order of the operations. A failed operation is answered with its error
// and poisons what it would have written: later operations that read such a buffer fail with the
// same error until it has been written anew in full. Nothing else is affected.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/budget.h"
#include "engine/base/mutex.h"
#include "server/data/transfers.h"
#include "server/pool/session_queues.h"
#include "server/session/answer.h"
#include "server/session/handles.h"
#include "server/session/operation.h"
#include "server/session/shared_state.h"
#include "server/tenant/environment.h"
#include "server/tenant/tenant.h"

namespace telegrad {

// How a session was opened.
struct SessionTerms {
  uint64_t id = 0;         // for the logs
  std::string token = {};  // see SessionRegistry
  bool resumable = false;
  int64_t lease_ns = 0, grace_ns = 0;  // of a resumable one
};

class Session final : public TransferOwner, public std::enable_shared_from_this<Session> {
 public:
  // `place` is the charge of its tenant's account of sessions, given back by Close; `memory` is
  // that of host_memory, given back by the destructor.
  Session(const Environment& env, std::shared_ptr<Tenant> tenant, SessionTerms terms,
          std::shared_ptr<AnswerSink> sink, Reservation place = {}, Reservation memory = {});
  ~Session() override;

  const SessionTerms& terms() const { return terms_; }
  // What it has counted by itself so far.
  const Metrics& counted() const { return *counted_; }
  int64_t opened_ns() const { return opened_ns_; }  // by the clock of the environment
  const Tenant& tenant() const { return *tenant_; }

  // For the streams that carry its large writes and reads.
  Transfers& transfers() override { return transfers_; }

  // Takes an operation from the stream of `from`, by one thread at a time; ignores it if that is
  // attached no more, or if the operation was taken before. RESOURCE_EXHAUSTED once the client
  // leaves too many answers unacknowledged; the caller then closes the session.
  absl::Status Submit(const AnswerSink& from, Operation operation);
  // The operation `id` of that stream: those from `first` to `last` that have not begun do not
  // begin, and what was started ends as soon as it can.
  void Cancel(const AnswerSink& from, uint64_t id, uint64_t first, uint64_t last);
  // True while no more of the stream should be read, because this session or its tenant has too
  // much under way. A session without operations under way is never congested: it does not wait for
  // other sessions, and the check is repeated whenever one of its own operations ends.
  bool Congested() const;
  // True when every operation submitted has been answered.
  bool Idle() const;
  // Drops what has not started, frees every buffer, detaches the sink. Work in flight ends at its
  // next segment.
  void Close(const absl::Status& why = absl::OkStatus());

  // Resumes the session with `sink`. Returns the sink that it replaces, which the caller notifies,
  // or null if that was detached. `sink` receives the answer of operation `id`, an OpenResult that
  // is completed here, then every kept answer after `acknowledged`.
  std::shared_ptr<AnswerSink> Attach(std::shared_ptr<AnswerSink> sink, uint64_t id,
                                     OpenResult opened, uint64_t acknowledged);
  // Detaches `sink`: it receives no more answers, and operations from it are ignored. Operations
  // taken before continue. False if it was not attached.
  bool Detach(const AnswerSink& sink);
  // The client has every answer up to this operation.
  void Acknowledge(uint64_t id);
  // Renews the lease, because a message of the client has arrived.
  void Renew() override;
  void Count(Metric metric, int64_t n) override { counter_(metric, n); }
  // The time at which the session is closed if no message arrives; INT64_MAX: never.
  int64_t EndsAt() const;
  // Of the kernels that its operations compile.
  WorkProgress::State compiling() const { return compiling_->state(); }
  // The last operation that was taken; 0: none.
  uint64_t last_operation() const;

 private:
  friend class Turn;
  friend class PendingAnswer;

  struct Queued {
    Operation operation;
    int64_t staged = 0;
    bool cancelled = false;
    bool begun = false;         // it was tried
    absl::Status refused = {};  // as one request too many, when it arrived
  };
  // An answer of a resumable session that is not acknowledged, whether or not a sink has received
  // it.
  struct Kept {
    Answer answer;
    Reservation of_session = {}, of_tenant = {}, always_paid = {};
  };
  // An operation whose answer is not given yet.
  struct Slot {
    bool done = false;
    bool quiet = false;                          // only an error is worth an answer
    std::shared_ptr<Cancellation> cancellation;  // of what is under way for it
    Answer answer;
    std::optional<Kept> kept;  // of a resumable session, once it is done and worth an answer
  };
  using SlotRef = std::shared_ptr<Slot>;

  void Drain(OnThread where);
  void Unblock(OnThread where, uint64_t arming);
  void Arm(Step step, const Turn& turn, uint64_t arming);
  static Step Execute(Queued& queued, Turn& turn);
  bool TakeLocked(const AnswerSink& from, uint64_t id) TG_REQUIRES(mutex_);

  SlotRef NewSlot(uint64_t id, bool quiet, std::shared_ptr<Cancellation> cancellation);
  void Finish(const SlotRef& slot);
  void EndedLocked(int64_t operations) TG_REQUIRES(mutex_);
  void ReleaseStagedLocked(int64_t bytes) TG_REQUIRES(mutex_);
  // What goes out or is dropped is left to the caller, to go without the lock.
  void EmitLocked(std::vector<SlotRef>* emitted) TG_REQUIRES(mutex_);
  Kept Keep(const Answer& answer) const;
  void ForgetLocked(uint64_t acknowledged, std::vector<Kept>* forgotten) TG_REQUIRES(mutex_);
  void RenewLocked() TG_REQUIRES(mutex_);

  const Environment& env_;
  const std::shared_ptr<Tenant> tenant_;
  const SessionTerms terms_;
  const std::shared_ptr<SessionQueues> queues_;
  const Reservation memory_;
  const int64_t opened_ns_;
  const std::shared_ptr<Metrics> counted_ = std::make_shared<Metrics>();
  const std::function<void(Metric, int64_t)> counter_;  // keeps what it counts in
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  const std::shared_ptr<WorkProgress> compiling_ = std::make_shared<WorkProgress>();
  const std::shared_ptr<Account> kept_bytes_;  // of the answers that are kept

  mutable Mutex mutex_;
  std::shared_ptr<AnswerSink> sink_ TG_GUARDED_BY(mutex_);
  std::deque<Queued> queue_ TG_GUARDED_BY(mutex_);
  std::deque<SlotRef> slots_ TG_GUARDED_BY(mutex_);
  std::deque<Kept> kept_ TG_GUARDED_BY(mutex_);
  uint64_t last_operation_ TG_GUARDED_BY(mutex_) = 0;
  int64_t ends_at_ TG_GUARDED_BY(mutex_) = INT64_MAX;
  Reservation place_ TG_GUARDED_BY(mutex_);
  int64_t staged_ TG_GUARDED_BY(mutex_) = 0;
  // Operations taken and not answered; charged, as staged_ is.
  int64_t under_way_ TG_GUARDED_BY(mutex_) = 0;
  bool draining_ TG_GUARDED_BY(mutex_) = false;  // a thread executes operations
  bool blocked_ TG_GUARDED_BY(mutex_) = false;   // the front of the queue waits
  // Number of its current wait; events of earlier waits are ignored.
  uint64_t arming_ TG_GUARDED_BY(mutex_) = 0;
  bool closed_ TG_GUARDED_BY(mutex_) = false;
  uint64_t running_ TG_GUARDED_BY(mutex_) = 0;  // the operation that the drainer is in; 0: none
  std::shared_ptr<Cancellation> running_cancellation_ TG_GUARDED_BY(mutex_);  // that it has
  // Of the job that the drainer is in, to be cancelled by Close.
  Budget* budget_ TG_GUARDED_BY(mutex_) = nullptr;

  Transfers transfers_;

  // Owned by the drainer, without the lock.
  Handles handles_;
  SharedState state_;
};

}  // namespace telegrad
