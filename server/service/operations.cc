// One Read function for each operation converts its message and moves large parts out of it.
#include "server/service/operations.h"

#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/ir/content_hash.h"
#include "engine/types/limits.h"
#include "engine/wire/envelope.h"
#include "engine/wire/graph_codec.h"
#include "google/protobuf/arena.h"
#include "server/operations/operations.h"
#include "server/service/import_model.h"

namespace telegrad {
namespace {

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

// One function for each row of operations.def: from the message of its field, and what travels with
// it. They take what is large out of the message.
using Data = std::unique_ptr<Payload>;

absl::StatusOr<AllocOp> Read(v1::Alloc& op, Data /*data*/) {
  AllocOp alloc{op.handle(), op.bytes(), std::move(*op.mutable_device())};
  if (!op.path().empty()) {
    TG_ASSIGN_OR_RETURN(const OpenMode mode, ToOpenMode(op.mode()));
    alloc.file = {std::move(*op.mutable_path()), op.file_offset(), mode};
  }
  return alloc;
}

absl::StatusOr<FreeOp> Read(v1::Free& op, Data /*data*/) {
  return FreeOp{{op.handles().begin(), op.handles().end()}};
}

absl::StatusOr<WriteOp> Read(v1::Write& op, Data data) {
  if (op.transfer() != 0) {
    if (data != nullptr && data->size() > 0) {
      return InvalidArgument("the bytes of transfer ", op.transfer(),
                             " do not travel with the operation");
    }
    data = nullptr;
  }
  return WriteOp{op.handle(), op.offset(), std::move(data), op.transfer(), op.bytes()};
}

absl::StatusOr<ReadOp> Read(v1::Read& op, Data /*data*/) {
  return ReadOp{op.handle(), op.offset(), op.bytes(), op.transfer()};
}

absl::StatusOr<CopyOp> Read(v1::Copy& op, Data /*data*/) {
  return CopyOp{op.from(), op.from_offset(), op.to(), op.to_offset(), op.bytes()};
}

absl::StatusOr<SendOp> Read(v1::Send& op, Data /*data*/) {
  return SendOp{.handle = op.handle(),
                .offset = op.offset(),
                .bytes = op.bytes(),
                .address = std::move(*op.mutable_address()),
                .transfer = op.transfer(),
                .identity = std::move(*op.mutable_identity()),
                .secret = std::move(*op.mutable_secret()),
                .tls = op.tls()};
}

absl::StatusOr<ReceiveOp> Read(v1::Receive& op, Data /*data*/) {
  return ReceiveOp{op.handle(), op.offset(), op.bytes(), op.transfer()};
}

absl::StatusOr<HasOp> Read(v1::Has& op, Data /*data*/) {
  HasOp has{
      std::move(*op.mutable_hash()), op.compile(), {op.devices().begin(), op.devices().end()}};
  for (const v1::Variable& v : op.variables()) has.variables.push_back({v.id(), v.value()});
  return has;
}

absl::StatusOr<PutOp> Read(v1::Put& op, Data data) {
  PutOp put;
  put.bytes = data->size();
  put.compile = op.compile();
  put.devices.assign(op.devices().begin(), op.devices().end());
  put.decode = [data = std::shared_ptr<Payload>(std::move(data))](Budget* budget) {
    return Decode(*data, budget);
  };
  return put;
}

absl::StatusOr<RunOp> Read(v1::Run& op, Data /*data*/) {
  RunOp run{std::move(*op.mutable_hash()),
            {op.handles().begin(), op.handles().end()},
            op.quiet(),
            op.trace()};
  for (const v1::Variable& v : op.variables()) run.variables.push_back({v.id(), v.value()});
  run.devices.assign(op.devices().begin(), op.devices().end());
  run.timeout_ms = op.timeout_ms();
  run.offsets.assign(op.offsets().begin(), op.offsets().end());
  run.search = op.search();
  if (op.priority() == v1::Run::LOW) run.priority = Priority::kLow;
  if (op.priority() == v1::Run::HIGH) run.priority = Priority::kHigh;
  return run;
}

absl::StatusOr<SyncOp> Read(v1::Sync& /*op*/, Data /*data*/) { return SyncOp{}; }

absl::StatusOr<ImportOp> Read(v1::Import& op, Data data) { return ToImport(op, std::move(data)); }

}  // namespace

bool TakesData(const v1::ExecuteRequest& request) {
  enum : bool { kNoData, kData };
  switch (request.op_case()) {
#define OPERATION(name, field, data) \
  case v1::ExecuteRequest::k##name:  \
    return data;
#include "server/operations/operations.def"
#undef OPERATION
    default:
      return false;
  }
}

absl::StatusOr<Operation> ToOperation(v1::ExecuteRequest& request,
                                      std::unique_ptr<Payload> payload) {
  Operation operation;
  operation.id = request.op_id();
  const auto make = [&](auto& message) -> absl::Status {
    auto op = Read(message, std::move(payload));
    if (!op.ok()) {
      return absl::Status(op.status().code(), StrCat("operation ", request.op_id(), ": ",
                                                     ToStd(op.status().message())));
    }
    operation.action = MakeAction(*std::move(op));
    return absl::OkStatus();
  };
  switch (request.op_case()) {
#define OPERATION(name, field, data)                      \
  case v1::ExecuteRequest::k##name:                       \
    TG_RETURN_IF_ERROR(make(*request.mutable_##field())); \
    return operation;
#include "server/operations/operations.def"
#undef OPERATION
    case v1::ExecuteRequest::kOpen:
      return InvalidArgument("operation ", request.op_id(),
                             ": open is allowed only as the first operation of a stream");
    case v1::ExecuteRequest::kCancel:
    case v1::ExecuteRequest::OP_NOT_SET:
      break;
  }
  return InvalidArgument("operation ", request.op_id(), " has no field that this server supports");
}

}  // namespace telegrad
