#include "server/service/operation_socket.h"

#include <string>
#include <utility>

#include "engine/base/burst.h"
#include "engine/base/status.h"
#include "proto/transport.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {
namespace {

std::string FarewellOf(const grpc::Status& status) {
  v1::Ended ended;
  ended.set_code(static_cast<uint32_t>(status.error_code()));
  ended.set_message(status.error_message());
  return ended.SerializeAsString();
}

}  // namespace

OperationSocket::OperationSocket(std::shared_ptr<StreamSocket> socket,
                                 std::shared_ptr<Account> memory)
    : socket_(
          std::move(socket), kMaxMessageBytes, [this](bool ok) { OnSent(ok); }, std::move(memory)) {
}

absl::Status OperationSocket::Serve(RawStream* stream) {
  stream_ = stream;
  stream->Bind(this);
  absl::Status broken;
  bool receives = true;
  while (grpc::ByteBuffer* const into = AwaitRead()) {
    absl::StatusOr<bool> received = false;
    if (receives) received = Receive(into);
    receives = received.value_or(false);
    if (!received.ok() && !finished()) {
      broken = received.status();
      socket_.Shutdown();  // a client that reads no further would hold up what is being sent
      stream->OnCancel();
    }
    const Burst burst;
    stream->OnReadDone(receives);
  }
  stream->OnDone();  // it may be gone
  if (!broken.ok()) return broken;
  // What is still on its way would make the system discard the farewell.
  while (receives && socket_.Receive().ok()) {
  }
  socket_.AwaitEnd();
  return absl::OkStatus();
}

absl::StatusOr<bool> OperationSocket::Receive(grpc::ByteBuffer* into) {
  TG_ASSIGN_OR_RETURN(auto message, socket_.Receive());
  if (!message) return false;
  const grpc::Slice slice(*message);
  *into = grpc::ByteBuffer(&slice, 1);
  return true;
}

grpc::ByteBuffer* OperationSocket::AwaitRead() {
  ReleasableLock lock(mutex_);
  while (read_into_ == nullptr && (!finished_ || telling_)) changed_.wait(lock);
  return std::exchange(read_into_, nullptr);
}

bool OperationSocket::finished() {
  const MutexLock lock(mutex_);
  return finished_;
}

void OperationSocket::Read(grpc::ByteBuffer* message) {
  {
    const MutexLock lock(mutex_);
    read_into_ = message;
  }
  changed_.notify_all();
}

void OperationSocket::Write(const grpc::ByteBuffer& message, const grpc::WriteOptions&) {
  sending_.emplace(message);
  socket_.SendLater(sending_->pieces);
}

bool OperationSocket::WriteNow(const grpc::ByteBuffer& message, const grpc::WriteOptions& options) {
  sending_.emplace(message);
  if (!socket_.Send(sending_->pieces, options.get_buffer_hint())) return false;
  sending_.reset();
  return true;
}

void OperationSocket::OnSent(bool ok) {
  sending_.reset();
  std::optional<grpc::Status> finish_with;
  {
    const MutexLock lock(mutex_);
    finish_with.swap(finish_with_);
    telling_ = true;
  }
  if (finish_with) {
    Finish(*finish_with);
  } else {
    stream_->OnWriteDone(ok);
  }
  const MutexLock lock(mutex_);
  telling_ = false;
  changed_.notify_all();
}

void OperationSocket::WriteAndFinish(const grpc::ByteBuffer& message,
                                     const grpc::WriteOptions& options,
                                     const grpc::Status& status) {
  {
    const MutexLock lock(mutex_);
    finish_with_ = status;
  }
  Write(message, options);
}

void OperationSocket::Finish(const grpc::Status& status) {
  socket_.End(FarewellOf(status));
  const MutexLock lock(mutex_);
  finished_ = true;
  changed_.notify_all();  // with the mutex: once it is free, this may be gone
}

}  // namespace telegrad
