#include "client/cc/execute_transport.h"

#include <string>
#include <utility>

#include "engine/base/burst.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"
#include "proto/transport.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

void ExecuteTransport::Told() {
  if (expected_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  User* const user = user_;  // who may destroy this when it is told
  user->OnDone(End());
}

ExecuteOverGrpc::ExecuteOverGrpc(User* user, Connection& connection, bool resumable,
                                 bool wait_for_ready)
    : ExecuteTransport(user),
      // A session that cannot be resumed would end with its call.
      use_(resumable ? CallEvents::Use::OfAny([this] { TryCancel(); }) : CallEvents::Use::OfOwn()) {
  context_.set_wait_for_ready(wait_for_ready);
  context_.set_initial_metadata_corked(true);
  grpc::GenericStub stub(connection.channel());
  // Without its token the server will refuse the stream, which says enough.
  connection.Authorize(&context_).IgnoreError();
  call_ = stub.PrepareCall(&context_, "/telegrad.v1.Compute/Execute", use_->queue());
}

// Nothing is told of the start: what it sends goes with the first message.
void ExecuteOverGrpc::Start() { call_->StartCall(nullptr); }

bool ExecuteOverGrpc::StartWrite(const grpc::ByteBuffer& message, bool more) {
  grpc::WriteOptions options;
  if (more) options.set_buffer_hint();
  call_->Write(message, options, written_.tag());
  return false;
}

absl::Status ExecuteOverGrpc::End() {
  use_.reset();
  return absl::Status(static_cast<absl::StatusCode>(status_.error_code()), status_.error_message());
}

ExecuteOverSocket::ExecuteOverSocket(User* user, std::shared_ptr<StreamSocket> socket)
    : ExecuteTransport(user),
      socket_(std::move(socket), kMaxMessageBytes, [this](bool ok) { OnSent(ok); }) {}

absl::StatusOr<std::shared_ptr<ExecuteTransport>> ExecuteOverSocket::Create(
    User* user, std::shared_ptr<StreamSocket> socket) {
  std::shared_ptr<ExecuteOverSocket> made(new ExecuteOverSocket(user, std::move(socket)));
  TG_RETURN_IF_ERROR(made->socket_.Start());
  TG_ASSIGN_OR_RETURN(made->reader_, StartThread([self = made.get()] { self->Receive(); }));
  return made;
}

ExecuteOverSocket::~ExecuteOverSocket() {
  socket_.Shutdown();
  {
    const MutexLock lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
}

void ExecuteOverSocket::TryCancel() {
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
  }
  socket_.Shutdown();
}

void ExecuteOverSocket::Receive() {
  ReleasableLock lock(mutex_);
  while (true) {
    while (read_into_ == nullptr && !finished_) changed_.wait(lock);
    if (finished_) break;
    lock.unlock();
    {
      Burst burst;
      do {
        lock.lock();
        grpc::ByteBuffer* const into = std::exchange(read_into_, nullptr);
        lock.unlock();
        if (into == nullptr) break;
        TellRead(ReceiveInto(into));
      } while (burst.MayGoOn() && socket_.has_more());
    }
    lock.lock();
  }
}

bool ExecuteOverSocket::ReceiveInto(grpc::ByteBuffer* into) {
  const absl::StatusOr<std::optional<std::string>> message = socket_.Receive();
  if (message.ok() && message->has_value()) {
    const grpc::Slice slice(**message);
    *into = grpc::ByteBuffer(&slice, 1);
    return true;
  }
  v1::Ended ended;
  if (absl::IsInvalidArgument(message.status())) {
    ended_ = Internal(ToStd(message.status().message()));
  } else if (!message.ok()) {
    ended_ = absl::UnavailableError(message.status().message());
  } else if (!ended.ParseFromString(socket_.farewell())) {
    ended_ = Internal("the server ended the stream with what is no reason");
  } else {
    ended_ = absl::Status(static_cast<absl::StatusCode>(ended.code()), ended.message());
  }
  return false;
}

absl::Status ExecuteOverSocket::End() {
  const MutexLock lock(mutex_);
  return cancelled_ ? absl::CancelledError("the connection was closed by this client") : ended_;
}

void ExecuteOverSocket::Finish() {
  {
    const MutexLock lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  socket_.Shutdown();  // a server that reads no further would hold up what is being written
  Told();
}

void ExecuteOverSocket::StartRead(grpc::ByteBuffer* into) {
  {
    const MutexLock lock(mutex_);
    read_into_ = into;
  }
  changed_.notify_all();
}

bool ExecuteOverSocket::StartWrite(const grpc::ByteBuffer& message, bool more) {
  if (!message.Dump(&sending_).ok()) sending_.clear();  // it is none of gRPC's, and so it does
  MessageSocket::Pieces pieces;
  for (const grpc::Slice& slice : sending_) pieces.emplace_back(slice.begin(), slice.size());
  if (!socket_.Send(std::move(pieces), more)) return false;
  sending_.clear();
  return true;
}

void ExecuteOverSocket::OnSent(bool ok) {
  sending_.clear();
  TellWritten(ok);
}

void ExecuteOverSocket::StartEnd() {
  socket_.End({});
  Told();
}

}  // namespace telegrad
