// A message received on a gRPC stream, split without copying its payload.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/status.h"
#include "engine/wire/envelope.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/transport.h"

namespace telegrad {

// Owns the memory that the envelope's payload points to.
class ReceivedAnswer {
 public:
  // Empties `buffer`. INTERNAL where it holds no `Response`.
  template <typename Response>
  absl::Status Take(grpc::ByteBuffer& buffer, Response* response) {
    TG_RETURN_IF_ERROR(Split(buffer));
    return Parse(envelope_.head, response);
  }
  // The same of a message that holds others, as elements of the field `repeated`, at most `most`:
  // the response is without them.
  template <typename Response>
  absl::Status Take(grpc::ByteBuffer& buffer, Response* response, int repeated, size_t most) {
    TG_RETURN_IF_ERROR(Split(buffer));
    std::string rest;
    const absl::Status taken = TakeFields(envelope_.head, repeated, most, &others_, &rest);
    if (absl::IsResourceExhausted(taken)) {
      TG_ASSIGN_OR_RETURN(const int64_t count, CountFields(envelope_.head, repeated));
      return Internal("a message of type ", Response::descriptor()->name(), " has ", count, " of ",
                      Response::descriptor()->FindFieldByNumber(repeated)->name(), ", at most ",
                      most, " may be there");
    }
    TG_RETURN_IF_ERROR(taken);
    return Parse(rest, response);
  }
  const Envelope& envelope() const { return envelope_; }
  // The messages within, as long as this is there.
  std::span<const std::string_view> others() const { return others_; }

 private:
  absl::Status Split(grpc::ByteBuffer& buffer) {
    if (!buffer.Dump(&slices_).ok()) return Internal("a message could not be read");
    buffer.Clear();
    std::vector<ByteSpan> pieces;
    for (const grpc::Slice& slice : slices_) pieces.emplace_back(slice.begin(), slice.size());
    return SplitEnvelope(pieces, kPayloadField, &envelope_);
  }
  template <typename Response>
  static absl::Status Parse(const std::string& message, Response* response) {
    if (response->ParseFromString(message)) return absl::OkStatus();
    return Internal("not a message of type ", Response::descriptor()->name());
  }

  std::vector<grpc::Slice> slices_;
  Envelope envelope_;
  std::vector<std::string_view> others_;
};

}  // namespace telegrad
