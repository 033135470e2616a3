// Between the wire's messages and the session's plain structs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/wire/envelope.h"
#include "grpcpp/grpcpp.h"
#include "server/session/answer.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {

// A message as the transport received it, kept alive while `pieces` are in use. Refers to itself:
// fixed where it is.
struct ReceivedMessage {
  explicit ReceivedMessage(const grpc::ByteBuffer& buffer);
  std::vector<grpc::Slice> slices;
  std::vector<std::span<const uint8_t>> pieces;
};

// SplitEnvelope of a request whose head protobuf makes objects of, many times as large: one over
// `limit` bytes is RESOURCE_EXHAUSTED, which says `raise`, how to have more.
absl::Status SplitRequest(const ReceivedMessage& message, int64_t limit, std::string_view raise,
                          Envelope* envelope);

// The next message for an answer: the whole answer or, of a read, one chunk beginning at byte
// `*sent` of it. Advances `*sent`; sets `*last` with the last message.
grpc::ByteBuffer ToMessage(const Answer& answer, uint64_t* sent, bool* last);
grpc::ByteBuffer ToMessage(const v1::ExecuteResponse& response);
// The serialized message of an answer that is short whatever was asked for; false if it is not.
bool ToShortMessage(const Answer& answer, std::string* message);
// A message of a head and, unless they are none, the bytes of its payload field, which `owner`
// keeps alive until the transport has sent them.
grpc::ByteBuffer ToMessage(std::string head, const void* payload, size_t bytes,
                           std::shared_ptr<const void> owner);

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace telegrad
