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
class ReceivedAnswer {
 public:
  // Empties `buffer`. INTERNAL where it holds no `Response`, or one whose field `repeated` has more
  // than `most` elements, which are counted before protobuf makes objects of them.
  template <typename Response>
  absl::Status Take(grpc::ByteBuffer& buffer, Response* response, int repeated = 0,
                    int64_t most = 0) {
    if (!buffer.Dump(&slices_).ok()) return Internal("a message could not be read");
    buffer.Clear();
    std::vector<ByteSpan> pieces;
    for (const grpc::Slice& slice : slices_) pieces.emplace_back(slice.begin(), slice.size());
    TG_RETURN_IF_ERROR(SplitEnvelope(pieces, kPayloadField, &envelope_));
    if (repeated != 0) {
      TG_ASSIGN_OR_RETURN(const int64_t count, CountFields(envelope_.head, repeated));
      if (count > most) {
        return Internal("a message of type ", Response::descriptor()->name(), " has ", count,
                        " of ", Response::descriptor()->FindFieldByNumber(repeated)->name(),
                        ", at most ", most, " may be there");
      }
    }
    if (response->ParseFromString(envelope_.head)) return absl::OkStatus();
    return Internal("not a message of type ", Response::descriptor()->name());
  }
  const Envelope& envelope() const { return envelope_; }

 private:
  std::vector<grpc::Slice> slices_;
  Envelope envelope_;
};

}  // namespace telegrad
