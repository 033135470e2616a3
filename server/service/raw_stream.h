// What every handler is to the transport: a stream of messages that nobody has parsed. Notices the
// calls that are reset before anything was answered.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "server/service/reset_guard.h"

namespace telegrad {

class RawStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Before the transport knows of this stream. The guard outlives it.
  void CountResets(ResetGuard* guard, std::string peer) {
    guard_ = guard;
    peer_ = std::move(peer);
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
  virtual void OnSent(bool /*ok*/) {}  // a message, or it could not be
  virtual void OnGone() {}             // the client

 private:
  ResetGuard* guard_ = nullptr;
  std::string peer_;
  std::atomic<bool> answered_ = false;
};

}  // namespace telegrad
