#include "server/service/convert.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/json.h"
#include "engine/base/rate_limit.h"
#include "engine/base/status.h"
#include "engine/ir/content_hash.h"
#include "engine/types/limits.h"
#include "engine/wire/graph_codec.h"
#include "google/protobuf/arena.h"
#include "proto/transport.h"
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

// The decoding of a graph. Its nodes are counted before protobuf makes objects of them, because an
// empty node takes two bytes on the wire and fifty times that in memory.
absl::StatusOr<VerifiedGraph> Decode(const Payload& payload, Budget* budget) {
  const int64_t bytes = payload.size();
  if (bytes > kMaxGraphBytes) {
    return ResourceExhausted("a graph of ", bytes, " bytes; the limit is ", kMaxGraphBytes);
  }
  std::string serialized(static_cast<size_t>(bytes), '\0');
  payload.CopyTo(serialized.data());
  TG_ASSIGN_OR_RETURN(const int64_t nodes, CountFields(serialized, v1::Graph::kNodesFieldNumber));
  if (nodes > kMaxNodes) {
    return ResourceExhausted("a graph of ", nodes, " nodes; the limit is ", kMaxNodes);
  }
  google::protobuf::Arena arena;
  auto* graph = google::protobuf::Arena::CreateMessage<v1::Graph>(&arena);
  if (!graph->ParseFromString(serialized)) return InvalidArgument("data is not a serialized Graph");
  TG_ASSIGN_OR_RETURN(FrozenGraph frozen, FromProto(*graph, budget));
  const Digest hash = ContentHash(frozen.root());
  return VerifiedGraph{std::move(frozen), hash};
}

absl::StatusOr<OpenMode> ToOpenMode(v1::FileMode mode) {
  switch (mode) {
    case v1::FILE_MODE_READ:
      return OpenMode::kRead;
    case v1::FILE_MODE_WRITE:
      return OpenMode::kWrite;
    case v1::FILE_MODE_CREATE:
      return OpenMode::kCreate;
    default:
      return InvalidArgument("alloc: unknown file mode ", static_cast<int>(mode));
  }
}

PutOp ToPut(bool compile, std::unique_ptr<Payload> payload) {
  PutOp put;
  put.bytes = payload->size();
  put.compile = compile;
  put.decode = [payload = std::shared_ptr<Payload>(std::move(payload))](Budget* budget) {
    return Decode(*payload, budget);
  };
  return put;
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
std::string Message(const absl::Status& status) {
  std::string text(status.message());
  if (!IsUtf8(text)) {
    std::ranges::replace_if(text, [](char c) { return static_cast<uint8_t>(c) >= 0x80; }, '?');
  }
  return text;
}

struct ResultToProto {
  v1::ExecuteResponse* response;
  void operator()(std::monostate) const {}
  void operator()(const OpenResult& r) const {
    v1::OpenResult* open = response->mutable_open();
    open->set_session(r.session);
    open->set_token(r.token);
    open->set_epoch(r.epoch);
    open->set_lease_ms(static_cast<uint32_t>(r.lease_ms));
    open->set_grace_ms(static_cast<uint32_t>(r.grace_ms));
    open->set_last_op_id(r.last_op_id);
  }
  void operator()(const HasResult& r) const { response->mutable_has()->set_has(r.has); }
  void operator()(const PutResult& r) const {
    response->mutable_put()->set_hash(r.hash.bytes.data(), r.hash.bytes.size());
    if (!r.cost) return;
    v1::RunCost* cost = response->mutable_put()->mutable_cost();
    cost->set_flops(r.cost->flops);
    cost->set_bytes(r.cost->bytes);
    cost->set_seconds(r.cost->seconds);
    cost->set_launch_seconds(r.cost->launch_seconds);
    cost->set_temporary_bytes(static_cast<uint64_t>(r.cost->temporary_bytes));
  }
  void operator()(const ImportResult& r) const { ToProto(r, response->mutable_import()); }
  void operator()(const RunResult& r) const {
    v1::RunResult* run = response->mutable_run();
    run->set_cached(r.cached);
    run->set_kernels(r.kernels);
    run->set_device_ns(r.device_ns);
    run->set_compile_ns(r.compile_ns);
    if (r.traced != nullptr) ToProto(*r.traced, run->mutable_trace());
  }
  void operator()(const ReadResult&) const {}
};

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

absl::StatusOr<Operation> ToOperation(v1::ExecuteRequest& request,
                                      std::unique_ptr<Payload> payload) {
  Operation operation{.id = request.op_id(), .op = SyncOp{}};
  switch (request.op_case()) {
    case v1::ExecuteRequest::kAlloc: {
      v1::Alloc& op = *request.mutable_alloc();
      AllocOp alloc{op.handle(), op.bytes(), std::move(*op.mutable_device())};
      if (!op.path().empty()) {
        TG_ASSIGN_OR_RETURN(const OpenMode mode, ToOpenMode(op.mode()));
        alloc.file = {std::move(*op.mutable_path()), op.file_offset(), mode};
      }
      operation.op = std::move(alloc);
      break;
    }
    case v1::ExecuteRequest::kFree: {
      const auto& handles = request.free().handles();
      operation.op = FreeOp{{handles.begin(), handles.end()}};
      break;
    }
    case v1::ExecuteRequest::kWrite: {
      const v1::Write& op = request.write();
      if (op.transfer() != 0) {
        if (payload != nullptr && payload->size() > 0) {
          return InvalidArgument("operation ", request.op_id(), ": the bytes of transfer ",
                                 op.transfer(), " do not travel with the operation");
        }
        payload = nullptr;
      }
      operation.op =
          WriteOp{op.handle(), op.offset(), std::move(payload), op.transfer(), op.bytes()};
      break;
    }
    case v1::ExecuteRequest::kRead: {
      const v1::Read& op = request.read();
      operation.op = ReadOp{op.handle(), op.offset(), op.bytes(), op.transfer()};
      break;
    }
    case v1::ExecuteRequest::kCopy: {
      const v1::Copy& op = request.copy();
      operation.op = CopyOp{op.from(), op.from_offset(), op.to(), op.to_offset(), op.bytes()};
      break;
    }
    case v1::ExecuteRequest::kHas:
      operation.op = HasOp{std::move(*request.mutable_has()->mutable_hash())};
      break;
    case v1::ExecuteRequest::kPut:
      operation.op = ToPut(request.put().compile(), std::move(payload));
      break;
    case v1::ExecuteRequest::kRun: {
      v1::Run& op = *request.mutable_run();
      RunOp run{std::move(*op.mutable_hash()),
                {op.handles().begin(), op.handles().end()},
                op.quiet(),
                op.trace()};
      for (const v1::Variable& v : op.variables()) run.variables.push_back({v.id(), v.value()});
      run.devices.assign(op.devices().begin(), op.devices().end());
      run.timeout_ms = op.timeout_ms();
      run.offsets.assign(op.offsets().begin(), op.offsets().end());
      if (op.priority() == v1::Run::LOW) run.priority = Priority::kLow;
      if (op.priority() == v1::Run::HIGH) run.priority = Priority::kHigh;
      operation.op = std::move(run);
      break;
    }
    case v1::ExecuteRequest::kSync:
      break;
    case v1::ExecuteRequest::kOpen:
      return InvalidArgument("operation ", request.op_id(),
                             ": open is allowed only as the first operation of a stream");
    case v1::ExecuteRequest::kImport:
      operation.op = ToImport(*request.mutable_import(), std::move(payload));
      break;
    case v1::ExecuteRequest::kCancel:
    case v1::ExecuteRequest::OP_NOT_SET:
      return InvalidArgument("operation ", request.op_id(),
                             " has no field that this server supports");
  }
  return operation;
}

grpc::ByteBuffer ToMessage(const Answer& answer, uint64_t* sent, bool* last) {
  v1::ExecuteResponse response;
  response.set_op_id(answer.id);
  if (const auto* read = std::get_if<ReadResult>(&answer.result); read && answer.status.ok()) {
    return ToChunk(response, *read, sent, last);
  }
  *last = true;
  if (answer.status.ok()) {
    std::visit(ResultToProto{&response}, answer.result);
  } else {
    response.mutable_status()->set_code(static_cast<uint32_t>(answer.status.raw_code()));
    response.mutable_status()->set_message(Message(answer.status));
    response.mutable_status()->set_retry_after_ms(
        static_cast<uint64_t>(RetryAfterMs(answer.status).value_or(0)));
  }
  return ToMessage(response);
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
