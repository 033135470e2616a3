// Parses the message, calls the handler on the transport's thread, and writes its answer or
// status.
#include "server/service/unary_call.h"

#include "engine/base/status.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "server/service/convert.h"

namespace telegrad {

void UnaryCall::End(absl::Status why) {
  if (!ending_.exchange(true)) Finish(ToGrpc(why));
}

void UnaryCall::OnReceived(bool ok) {
  if (ending_.exchange(true)) return;
  if (!ok) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "a call without a request"});
  absl::Status status;
  grpc::ByteBuffer response;
  if (const size_t bytes = message_.Length(); bytes > kMaxUnaryBytes) {
    status =
        ResourceExhausted("a request of ", bytes, " bytes; this method takes ", kMaxUnaryBytes);
  } else {
    status = handler_(message_, &response);
  }
  if (!status.ok()) return Finish(ToGrpc(status));
  message_.Swap(&response);
  StartWriteAndFinish(&message_, {}, grpc::Status::OK);
}

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message) {
  grpc::ByteBuffer copy = bytes;  // of the references to its slices, which the reader wants to own
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok() || !message->ParseFromZeroCopyStream(&reader)) {
    return InvalidArgument("malformed message: not a ", message->GetTypeName());
  }
  return absl::OkStatus();
}

grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace telegrad
