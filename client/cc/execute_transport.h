// One connection of an ExecuteStream: a call of Compute.Execute, or a bulk socket that carries the
// same messages. One read and one write may be under way at a time.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/call_events.h"
#include "client/cc/connection.h"
#include "engine/base/mutex.h"
#include "engine/net/message_socket.h"
#include "engine/net/stream_socket.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/call_event.h"

namespace telegrad {

class ExecuteTransport {
 public:
  // What is told, on threads of the transport: of each message that was read or written, and of the
  // end, behind which nothing is told.
  class User {
   public:
    virtual void OnReadDone(ExecuteTransport& transport, bool ok) = 0;
    virtual void OnWriteDone(bool ok) = 0;
    virtual void OnDone(const absl::Status& status) = 0;

   protected:
    ~User() = default;
  };

  virtual ~ExecuteTransport() = default;
  virtual bool is_socket() const = 0;

  virtual void Start() = 0;
  void Read(grpc::ByteBuffer* into) {
    Expect();
    StartRead(into);
  }
  // True: it has been written, and is not told. `more`: another message follows at once.
  bool Write(const grpc::ByteBuffer& message, bool more) {
    Expect();
    if (!StartWrite(message, more)) return false;
    expected_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  // No message will be written any more.
  void EndWrites() {
    Expect();
    StartEnd();
  }
  // From any thread.
  virtual void TryCancel() = 0;
  // No message is read any more.
  virtual void Finish() = 0;
  // No message is written any more; this may be gone when it returns.
  void Release() { Told(); }

 protected:
  explicit ExecuteTransport(User* user) : user_(user) {}

  // One of what is expected was told; of the last, that it is over.
  void Told();
  void TellRead(bool ok) {
    user_->OnReadDone(*this, ok);
    Told();
  }
  void TellWritten(bool ok) {
    user_->OnWriteDone(ok);
    Told();
  }

 private:
  virtual void StartRead(grpc::ByteBuffer* into) = 0;
  virtual bool StartWrite(const grpc::ByteBuffer& message, bool more) = 0;
  virtual void StartEnd() = 0;
  // What the connection ended with, when all else was told.
  virtual absl::Status End() = 0;
  void Expect() { expected_.fetch_add(1, std::memory_order_relaxed); }

  User* const user_;
  // What it is still to be told, and its release.
  std::atomic<int> expected_ = 2;  // the end of Finish, too
};

class ExecuteOverGrpc final : public ExecuteTransport {
 public:
  // `resumable`: another call can take the place of one that was cancelled.
  ExecuteOverGrpc(User* user, Connection& connection, bool resumable, bool wait_for_ready);

  bool is_socket() const override { return false; }
  void Start() override;
  void TryCancel() override { context_.TryCancel(); }
  void Finish() override { call_->Finish(&status_, finished_.tag()); }

 private:
  using Event = EventOf<ExecuteOverGrpc>;

  void StartRead(grpc::ByteBuffer* into) override { call_->Read(into, read_.tag()); }
  bool StartWrite(const grpc::ByteBuffer& message, bool more) override;
  void StartEnd() override { call_->WritesDone(writes_ended_.tag()); }
  absl::Status End() override;
  void OnRead(bool ok) { TellRead(ok); }
  void OnWritten(bool ok) { TellWritten(ok); }
  void OnOther(bool /*ok*/) { Told(); }

  grpc::ClientContext context_;
  std::optional<CallEvents::Use> use_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Event read_{this, &ExecuteOverGrpc::OnRead}, written_{this, &ExecuteOverGrpc::OnWritten};
  Event writes_ended_{this, &ExecuteOverGrpc::OnOther}, finished_{this, &ExecuteOverGrpc::OnOther};
  grpc::Status status_;
};

class ExecuteOverSocket final : public ExecuteTransport {
 public:
  // On a socket whose server takes operations there. RESOURCE_EXHAUSTED where there are no threads.
  static absl::StatusOr<std::shared_ptr<ExecuteTransport>> Create(
      User* user, std::shared_ptr<StreamSocket> socket);
  ~ExecuteOverSocket() override;

  bool is_socket() const override { return true; }
  void Start() override {}
  void TryCancel() override;
  void Finish() override;

 private:
  ExecuteOverSocket(User* user, std::shared_ptr<StreamSocket> socket);
  void StartRead(grpc::ByteBuffer* into) override;
  bool StartWrite(const grpc::ByteBuffer& message, bool more) override;
  void StartEnd() override;
  absl::Status End() override;
  void Receive();  // the thread that reads
  bool ReceiveInto(grpc::ByteBuffer* into);
  void OnSent(bool ok);

  std::vector<grpc::Slice> sending_;  // of the writer, until OnSent
  absl::Status ended_;                // of the reader

  Mutex mutex_;
  ConditionVariable changed_;
  grpc::ByteBuffer* read_into_ TG_GUARDED_BY(mutex_) = nullptr;
  bool finished_ TG_GUARDED_BY(mutex_) = false;
  bool cancelled_ TG_GUARDED_BY(mutex_) = false;

  MessageSocket socket_;
  std::thread reader_;
};

}  // namespace telegrad
