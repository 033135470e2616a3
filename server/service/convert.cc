// Answers and traces as messages; large results refer to memory that is kept until the transport
// has sent it.
#include "server/service/convert.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/device_lost.h"
#include "engine/base/rate_limit.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "proto/transport.h"
#include "server/operations/operations.h"
#include "server/service/import_model.h"
#include "telegrad/v1/errors.pb.h"

namespace telegrad {
namespace {

// A slice over memory that `owner` keeps alive until the transport has sent it.
template <typename Owner>
grpc::Slice OwnedSlice(const void* data, size_t size, Owner owner) {
  return grpc::Slice(
      const_cast<void*>(data), size, [](void* owner) { delete static_cast<Owner*>(owner); },
      new Owner(std::move(owner)));
}

// Kernels by name, in the order of their launches; a trace has them in that order, each in one or
// more segments.
class ReasonFinder {
 public:
  explicit ReasonFinder(std::span<const KernelInfo> kernels) {
    for (const KernelInfo& kernel : kernels) by_name_[kernel.name].kernels.push_back(&kernel);
  }

  // The kernel of the next launch of that name; null if there are no more.
  const KernelInfo* Next(const std::string& name) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end() || it->second.at == it->second.kernels.size()) return nullptr;
    Cursor& cursor = it->second;
    const KernelInfo* kernel = cursor.kernels[cursor.at];
    if (++cursor.segment >= kernel->segments) {
      cursor.segment = 0;
      ++cursor.at;
    }
    return kernel;
  }

 private:
  struct Cursor {
    std::vector<const KernelInfo*> kernels;
    size_t at = 0;
    int segment = 0;
  };
  absl::flat_hash_map<std::string, Cursor> by_name_;
};

// Events that the answer has no more room for are counted.
void ToProto(const TracedRun& run, v1::RunTrace* out) {
  const std::vector<TraceEvent> events = run.trace.events();
  const size_t kept = std::min(events.size(), static_cast<size_t>(run.most_events));
  out->set_dropped(events.size() - kept);
  out->set_end_ns(static_cast<uint64_t>(std::max<int64_t>(run.ended_ns - run.submitted_ns, 0)));
  ReasonFinder reasons(run.executable->kernels());
  for (const TraceEvent& event : std::span(events).first(kept)) {
    v1::TraceEvent* to = out->add_events();
    to->set_kind(event.kind == CommandKind::kCopy ? v1::TraceEvent::COPY : v1::TraceEvent::LAUNCH);
    to->set_name(event.name);
    to->set_queue(event.queue);
    to->set_begin_ns(event.begin_ns - run.submitted_ns);
    to->set_duration_ns(static_cast<uint64_t>(std::max<int64_t>(event.end_ns - event.begin_ns, 0)));
    to->set_flops(event.flops);
    to->set_bytes(event.bytes);
    if (event.kind == CommandKind::kCopy) continue;
    if (const KernelInfo* kernel = reasons.Next(event.name)) {
      to->mutable_reasons()->Add(kernel->reasons.begin(), kernel->reasons.end());
    }
  }
}

// What an error says, which may repeat what a client has sent.
std::string Message(const absl::Status& status) { return AsUtf8(ToStd(status.message())); }

void ToProto(const OpenResult& r, v1::ExecuteResponse* response) {
  v1::OpenResult* open = response->mutable_open();
  open->set_session(r.session);
  open->set_token(r.token);
  open->set_epoch(r.epoch);
  open->set_lease_ms(static_cast<uint32_t>(r.lease_ms));
  open->set_grace_ms(static_cast<uint32_t>(r.grace_ms));
  open->set_last_op_id(r.last_op_id);
}

void ToProto(const RunCost& from, v1::RunCost* cost) {
  cost->set_flops(from.flops);
  cost->set_bytes(from.bytes);
  cost->set_seconds(from.seconds);
  cost->set_launch_seconds(from.launch_seconds);
  cost->set_temporary_bytes(static_cast<uint64_t>(from.temporary_bytes));
}

void ToProto(const HasResult& r, v1::ExecuteResponse* response) {
  v1::HasResult* has = response->mutable_has();
  has->set_has(r.has);
  if (!r.cost) return;
  ToProto(r.cost->greatest, has->mutable_cost());
  has->set_least_share(r.cost->least_share);
  for (const VarBounds& bounds : r.cost->bounds) {
    v1::VariableRange* range = has->add_ranges();
    range->set_id(bounds.id);
    range->set_min(bounds.min);
    range->set_max(bounds.max);
    range->set_multiple(bounds.multiple);
  }
}

void ToProto(const PutResult& r, v1::ExecuteResponse* response) {
  response->mutable_put()->set_hash(r.hash.bytes.data(), r.hash.bytes.size());
  if (r.cost) ToProto(*r.cost, response->mutable_put()->mutable_cost());
}

void ToProto(const ImportResult& r, v1::ExecuteResponse* response) {
  ToProto(r, response->mutable_import());
}

void ToProto(const RunResult& r, v1::ExecuteResponse* response) {
  v1::RunResult* run = response->mutable_run();
  run->set_cached(r.cached);
  run->set_kernels(r.kernels);
  run->set_device_ns(r.device_ns);
  run->set_compile_ns(r.compile_ns);
  if (r.traced != nullptr) ToProto(*r.traced, run->mutable_trace());
}

// The first kind that it is.
template <typename... Kinds>
void AnyToProto(const Answer& answer, v1::ExecuteResponse* response) {
  const auto is = [&]<typename Kind>(const Kind* result) {
    if (result != nullptr) ToProto(*result, response);
    return result != nullptr;
  };
  (is(ResultAs<Kinds>(answer)) || ...);
}

// Of any answer without data.
void ToProto(const Answer& answer, v1::ExecuteResponse* response) {
  response->set_op_id(answer.id);
  if (answer.status.ok()) {
    AnyToProto<RunResult, HasResult, PutResult, ImportResult, OpenResult>(answer, response);
    return;
  }
  v1::Status& status = *response->mutable_status();
  status.set_code(static_cast<uint32_t>(answer.status.raw_code()));
  status.set_message(Message(answer.status));
  status.set_retry_after_ms(static_cast<uint64_t>(RetryAfterMs(answer.status).value_or(0)));
  status.set_device_lost(IsDeviceLost(answer.status));
}

grpc::ByteBuffer ToChunk(v1::ExecuteResponse& response, const ReadResult& read, uint64_t* sent,
                         bool* last) {
  const uint64_t size = std::min<uint64_t>(read.bytes - *sent, kChunkBytes);
  const uint64_t offset = read.offset + *sent;
  *last = *sent + size == read.bytes;
  response.mutable_read()->set_offset(offset);
  response.mutable_read()->set_last(*last);
  std::string head = response.SerializeAsString();
  if (read.held == nullptr) {
    head = EnvelopeHead(std::move(head), kPayloadField, size);
    head.append(read.copy, *sent, size);
    *sent += size;
    const void* data = head.data();
    const size_t bytes = head.size();
    if (bytes <= 1024) {
      const grpc::Slice slice(data, bytes);
      return grpc::ByteBuffer(&slice, 1);
    }
    auto owner = std::make_shared<std::string>(std::move(head));
    const grpc::Slice slice = OwnedSlice(owner->data(), bytes, owner);
    return grpc::ByteBuffer(&slice, 1);
  }
  const auto* memory = static_cast<const std::byte*>(read.held->memory()->host());
  const std::byte* from = memory + read.at + *sent;
  *sent += size;
  return ToMessage(std::move(head), from, size, read.held);
}

}  // namespace

ReceivedMessage::ReceivedMessage(const grpc::ByteBuffer& buffer) {
  // Fails only where a compressed message does not decompress, which gRPC has done before.
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) slices.clear();
  for (const grpc::Slice& slice : slices) pieces.emplace_back(slice.begin(), slice.size());
}

absl::Status SplitRequest(const ReceivedMessage& message, int64_t limit, std::string_view raise,
                          Envelope* envelope) {
  size_t bytes = 0;
  for (const ByteSpan& piece : message.pieces) bytes += piece.size();
  if (bytes > static_cast<uint64_t>(limit)) {
    TG_ASSIGN_OR_RETURN(const uint64_t head, HeadBytes(message.pieces, kPayloadField));
    if (head > static_cast<uint64_t>(limit)) {
      return ResourceExhausted("a message of ", head, " bytes beside its data; the limit is ",
                               limit, "; ", raise);
    }
  }
  return SplitEnvelope(message.pieces, kPayloadField, envelope);
}

grpc::ByteBuffer ToMessage(const Answer& answer, uint64_t* sent, bool* last) {
  v1::ExecuteResponse response;
  if (const auto* read = ResultAs<ReadResult>(answer); read != nullptr) {
    response.set_op_id(answer.id);
    return ToChunk(response, *read, sent, last);
  }
  *last = true;
  ToProto(answer, &response);
  return ToMessage(response);
}

bool ToShortMessage(const Answer& answer, std::string* message) {
  const auto* const run = ResultAs<RunResult>(answer);
  if (run != nullptr ? run->traced != nullptr
                     : answer.result != nullptr && ResultAs<HasResult>(answer) == nullptr) {
    return false;
  }
  v1::ExecuteResponse response;
  ToProto(answer, &response);
  response.SerializeToString(message);
  return true;
}

grpc::ByteBuffer ToMessage(const v1::ExecuteResponse& response) {
  const grpc::Slice slice(response.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer ToMessage(std::string head, const void* payload, size_t bytes,
                           std::shared_ptr<const void> owner) {
  if (bytes == 0) {
    const grpc::Slice slice(head);
    return grpc::ByteBuffer(&slice, 1);
  }
  const grpc::Slice slices[] = {grpc::Slice(EnvelopeHead(std::move(head), kPayloadField, bytes)),
                                OwnedSlice(payload, bytes, std::move(owner))};
  return grpc::ByteBuffer(slices, 2);
}

namespace {

// For grpc-status-details-bin; empty where there is nothing to add.
std::string Details(const absl::Status& status) {
  const std::optional<int64_t> ms = RetryAfterMs(status);
  if (!ms) return "";
  v1::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(*ms / 1000);
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(*ms % 1000 * 1'000'000));
  v1::RpcStatus details;
  details.set_code(status.raw_code());
  details.set_message(Message(status));
  google::protobuf::Any& any = *details.add_details();
  any.set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  any.set_value(retry.SerializeAsString());
  return details.SerializeAsString();
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.raw_code()), Message(status), Details(status)};
}

}  // namespace telegrad
