// The turn of one operation: what it may do with its session, on the thread that drains the queue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "devices/api/device.h"
#include "server/data/held_read.h"
#include "server/session/answer.h"
#include "server/session/handles.h"
#include "server/session/operation.h"
#include "server/session/session.h"
#include "server/session/shared_state.h"

namespace telegrad {

// The place of an answer that comes after the turn, from any thread.
class PendingAnswer {
 public:
  void Give(const absl::Status& status, std::shared_ptr<const Result> result = nullptr) const;
  // See Turn.
  void Count(Metric metric, int64_t n = 1) const { session_->Count(metric, n); }
  Tenant& tenant() const { return *session_->tenant_; }
  const Environment& env() const { return session_->env_; }
  Transfers& transfers() const { return session_->transfers_; }

 private:
  friend class Turn;
  PendingAnswer(std::shared_ptr<Session> session, std::shared_ptr<Session::Slot> slot)
      : session_(std::move(session)), slot_(std::move(slot)) {}
  std::shared_ptr<Session> session_;
  std::shared_ptr<Session::Slot> slot_;
};

class Turn {
 public:
  // Made by its session alone.
  Turn(Session& session, const Operation& operation, OnThread where)
      : session_(session), id_(operation.id), where_(where), trace_(operation.trace) {}

  uint64_t id() const { return id_; }
  OnThread where() const { return where_; }
  // Not a reader's or a device's thread: work of milliseconds may be done.
  bool long_work() const { return where_ == OnThread::kWorker || where_ == OnThread::kCompiler; }
  OperationTrace* trace() const { return trace_.get(); }
  // To be continued and ended by the operation itself.
  std::shared_ptr<OperationTrace> TakeTrace() { return std::move(trace_); }

  const Environment& env() const { return session_.env_; }
  Tenant& tenant() const { return *session_.tenant_; }
  const std::shared_ptr<SessionQueues>& queues() const { return session_.queues_; }
  Handles& handles() const { return session_.handles_; }
  Transfers& transfers() const { return session_.transfers_; }
  template <typename T>
  T& state() const {
    return session_.state_.Get<T>();
  }

  // The ways to end a turn.
  Step Reply(std::shared_ptr<const Result> result = nullptr);
  Step Fail(const absl::Status& error);
  // `quiet`: only an error is worth an answer. The cancellation is that of what is under way.
  PendingAnswer Later(bool quiet = false, std::shared_ptr<Cancellation> cancellation = nullptr);
  // Again once the point is reached. `others`: it may belong to another session's submission, and
  // may be reached on a thread that holds a lock which draining takes.
  Step Wait(TimelinePoint point, bool others = false);
  // Again once nothing of it is sent any more.
  Step Wait(std::shared_ptr<HeldRead> held);

  // A long job of this turn, which a cancellation and the end of the session end. CANCELLED if the
  // session has ended. The budget outlives it.
  class Job {
   public:
    static absl::StatusOr<Job> Begin(Turn& turn, Budget* budget);
    Job(Job&& other) noexcept
        : session_(std::exchange(other.session_, nullptr)), before_(other.before_) {}
    Job& operator=(Job&&) = delete;
    ~Job();

   private:
    Job(Session* session, Budget* before) : session_(session), before_(before) {}
    Session* session_;
    Budget* const before_;  // of the job that this one is a part of
  };

  // Counts in the daemon's metrics and in the tenant's.
  void Count(Metric metric, int64_t n = 1) const { session_.Count(metric, n); }
  // The same, from any thread and after the turn. Keeps the session.
  std::function<void(int64_t n)> CountLater(Metric metric) const {
    return
        [session = session_.shared_from_this(), metric](int64_t n) { session->Count(metric, n); };
  }

 private:
  friend class Session;
  Session& session_;
  const uint64_t id_;
  const OnThread where_;
  std::shared_ptr<OperationTrace> trace_;
  bool answers_ = false;  // it has a slot
  // What a blocked operation waits for: one of these.
  TimelinePoint point_;
  bool others_ = false;
  std::shared_ptr<HeldRead> held_;
};

}  // namespace telegrad
