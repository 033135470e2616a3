// A message received on a gRPC stream, split without copying its payload.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "engine/base/status.h"
#include "engine/wire/envelope.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/transport.h"

namespace telegrad {

// Owns the memory that the envelope's payload points to.
class ReceivedMessage {
 public:
  // Empties `buffer`. INTERNAL where it holds no `Response`.
  template <typename Response>
  absl::Status Take(grpc::ByteBuffer& buffer, Response* response) {
    if (!buffer.Dump(&slices_).ok()) return Internal("a message could not be read");
    buffer.Clear();
    std::vector<ByteSpan> pieces;
    for (const grpc::Slice& slice : slices_) pieces.emplace_back(slice.begin(), slice.size());
    TG_RETURN_IF_ERROR(SplitEnvelope(pieces, kPayloadField, &envelope_));
    if (response->ParseFromString(envelope_.head)) return absl::OkStatus();
    return Internal("not a message of type ", Response::descriptor()->name());
  }
  const Envelope& envelope() const { return envelope_; }

 private:
  std::vector<grpc::Slice> slices_;
  Envelope envelope_;
};

}  // namespace telegrad
