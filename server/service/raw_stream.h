// The transport's view of every handler: a stream of messages that are not parsed. It reports
// calls that are reset before they were answered to the ResetGuard, and is registered with the
// CallWatch.
//
// One read and one write may be under way at a time. A stream is over once Finish, or
// StartWriteAndFinish, was called, whatever was under way has ended, and the transport has said how
// the call went. Its reactions are called by threads of the transport, never from within what
// starts something.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/admin/histogram.h"
#include "server/service/call_watch.h"
#include "server/service/reset_guard.h"

namespace telegrad {

// Does what a stream starts, and reports each to it on another thread.
class StreamTransport {
 public:
  virtual ~StreamTransport() = default;
  virtual void Read(grpc::ByteBuffer* message) = 0;
  virtual void Write(const grpc::ByteBuffer& message, const grpc::WriteOptions& options) = 0;
  // The same, but that it may be done when this returns: true, and then it is not reported.
  virtual bool WriteNow(const grpc::ByteBuffer& message, const grpc::WriteOptions& options) {
    Write(message, options);
    return false;
  }
  virtual void WriteAndFinish(const grpc::ByteBuffer& message, const grpc::WriteOptions& options,
                              const grpc::Status& status) = 0;
  virtual void Finish(const grpc::Status& status) = 0;
  // Whether a read costs less where it begins behind a write; see LateReads.
  virtual bool PrefersLateReads() const { return false; }
};

class RawStream {
 public:
  RawStream() = default;
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;
  virtual ~RawStream() = default;

  // Before the transport knows of this stream. The guard outlives it.
  void CountResets(ResetGuard* guard, std::string peer) {
    guard_ = guard;
    peer_ = std::move(peer);
  }

  // Likewise. Until the call is over; nothing of it outlives the watch.
  void EnterWatch(CallWatch* watch, std::shared_ptr<const CallWatch::Known> known) {
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

  // By the transport. What was started before is started now.
  void Bind(StreamTransport* transport);
  void OnReadDone(bool ok) {
    if (ok) heard_.store(true, std::memory_order_relaxed);
    OnReceived(ok);
  }
  void OnWriteDone(bool ok) {
    answered_.store(true, std::memory_order_relaxed);
    OnSent(ok);
  }
  // The client is gone, or the call was cancelled.
  void OnCancel() {
    if (guard_ != nullptr && !answered_.load(std::memory_order_relaxed)) guard_->Count(peer_);
    OnGone();
  }
  void OnDone();

 protected:
  // What is pointed to stays until OnReceived, or OnSent, or OnOver.
  void StartRead(grpc::ByteBuffer* message);
  void StartWrite(const grpc::ByteBuffer* message, const grpc::WriteOptions& options = {});
  // True: the message is sent, and OnSent is not called.
  bool WriteNow(const grpc::ByteBuffer* message, const grpc::WriteOptions& options);
  void StartWriteAndFinish(const grpc::ByteBuffer* message, const grpc::WriteOptions& options,
                           const grpc::Status& status);
  void Finish(const grpc::Status& status);
  bool PrefersLateReads() const {
    const StreamTransport* const transport = transport_.load(std::memory_order_acquire);
    return transport != nullptr && transport->PrefersLateReads();
  }

  virtual void OnReceived(bool /*ok*/) {}  // a message; or none follows
  virtual void OnSent(bool /*ok*/) {}      // a message, or it could not be
  virtual void OnGone() {}                 // the client
  virtual void OnOver() = 0;               // all; this may be deleted

 private:
  using Op = std::function<void(StreamTransport&)>;
  template <typename Do>
  void Start(Do op);

  ResetGuard* guard_ = nullptr;
  std::string peer_;
  Histogram* times_ = nullptr;
  int64_t began_ns_ = 0;
  std::shared_ptr<CallWatch::Row> row_;
  Reservation place_;
  std::atomic<bool> answered_ = false, heard_ = false;
  std::atomic<StreamTransport*> transport_ = nullptr;
  Mutex binding_;
  absl::InlinedVector<Op, 1> early_
      TG_GUARDED_BY(binding_);  // started before there was a transport
};

}  // namespace telegrad
