// The interface of an operation to its session: it is carried out in its turn, may have to wait,
// may be cancelled, and is answered. The operations are in server/operations.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "devices/api/cancellation.h"
#include "server/admin/tracer.h"
#include "server/data/transfers.h"
#include "server/tenant/environment.h"

namespace telegrad {

class Turn;

// What has become of a turn: the operation is done with, although its answer may come later, or it
// is to be done again from its start: after what it waits for, or on another kind of thread.
enum class Step { kDone, kBlocked, kNeedsWorker, kNeedsCompiler };

// The kind of thread that has the turn, which limits the work that may be done there.
enum class OnThread { kReader, kDevice, kWorker, kCompiler };

class Action {
 public:
  // When it is taken from its stream, in the order of the operations: before its turn.
  struct Arrival {
    const Environment& env;
    Transfers& transfers;
    Transfers::Leftovers* leftovers;
    const std::shared_ptr<Cancellation>& session;  // cancelled with it
  };

  virtual ~Action() = default;
  // Called under the session's lock: must not call back.
  virtual void Arrive(const Arrival& /*arrival*/) {}
  // Received bytes that wait for their turn with it.
  virtual int64_t staged_bytes() const { return 0; }
  // Of the work that it starts; null: it starts none that can be cancelled.
  virtual std::shared_ptr<Cancellation> cancellation() const { return nullptr; }

  virtual Step Do(Turn& turn) = 0;
  // It was cancelled before it has begun: it fails, and with it whatever was to depend on it.
  virtual Step Refuse(Turn& turn, const absl::Status& error);
  // It was cancelled after it has begun: true if Do ends it.
  virtual bool Interrupt() { return false; }
  // What it waits for comes soon, and no cancellation ends it.
  virtual bool committed() const { return false; }
  // Whether it counts as a request of its tenant. What only gives back is never refused.
  virtual bool is_request() const { return true; }
};

struct Operation {
  uint64_t id = 0;
  int64_t head_bytes = 0;                           // as it was sent, without its payload
  std::shared_ptr<OperationTrace> trace = nullptr;  // if it is traced
  std::unique_ptr<Action> action = nullptr;         // null: nothing but to be answered
};

}  // namespace telegrad
