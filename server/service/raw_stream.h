// The transport's view of every handler: a stream of messages that are not parsed. It reports
// calls that are reset before they were answered to the ResetGuard, and is registered with the
// CallWatch.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/account.h"
#include "grpcpp/grpcpp.h"
#include "server/admin/histogram.h"
#include "server/service/call_watch.h"
#include "server/service/reset_guard.h"

namespace telegrad {

class RawStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Before the transport knows of this stream. The guard outlives it.
  void CountResets(ResetGuard* guard, std::string peer) {
    guard_ = guard;
    peer_ = std::move(peer);
  }

  // Likewise. Until the call is over; nothing of it outlives the watch.
  void EnterWatch(CallWatch* watch, std::optional<CallWatch::Known> known) {
    row_ = watch->Enter(this, std::move(known));
  }
  // Likewise: told how long the call took, when it is over. Outlives it.
  void Time(Histogram* times) {
    times_ = times;
    began_ns_ = Clock::Steady()->Ns();
  }
  // Likewise: given back when the call is over.
  void Hold(Reservation place) { place_ = std::move(place); }
  // Whether a message has come.
  bool heard() const { return heard_.load(std::memory_order_relaxed); }

  // From the watch, on a thread of its own, at any time before OnOver: the call is to end now.
  virtual void End(absl::Status why) = 0;
  // The server is about to stop.
  virtual void OnDrain() {}

  void OnReadDone(bool ok) final {
    if (ok) heard_.store(true, std::memory_order_relaxed);
    OnReceived(ok);
  }
  void OnDone() final {
    if (times_ != nullptr) times_->Observe(Clock::Steady()->Ns() - began_ns_);
    if (row_ != nullptr) row_->Leave();
    place_ = Reservation();
    OnOver();
  }
  void OnWriteDone(bool ok) final {
    answered_.store(true, std::memory_order_relaxed);
    OnSent(ok);
  }
  void OnCancel() final {
    if (guard_ != nullptr && !answered_.load(std::memory_order_relaxed)) guard_->Count(peer_);
    OnGone();
  }

 protected:
  virtual void OnReceived(bool /*ok*/) {}  // a message; or none follows
  virtual void OnSent(bool /*ok*/) {}      // a message, or it could not be
  virtual void OnGone() {}                 // the client
  virtual void OnOver() = 0;               // all; this may be deleted

 private:
  ResetGuard* guard_ = nullptr;
  std::string peer_;
  Histogram* times_ = nullptr;
  int64_t began_ns_ = 0;
  std::shared_ptr<CallWatch::Row> row_;
  Reservation place_;
  std::atomic<bool> answered_ = false, heard_ = false;
};

}  // namespace telegrad
