#include "client/cc/remote_session.h"

#include <utility>

#include "client/cc/execute_stream.h"
#include "engine/wire/graph_codec.h"
#include "telegrad/v1/graph.pb.h"

namespace telegrad {
namespace {

enum class Wanted { kNothing, kResult, kTrace };

v1::ExecuteRequest RunRequest(const Digest& hash, std::span<const uint64_t> handles, Wanted wanted,
                              std::span<const VarValue> variables) {
  v1::ExecuteRequest request;
  v1::Run& run = *request.mutable_run();
  run.set_hash(hash.bytes.data(), hash.bytes.size());
  run.mutable_handles()->Add(handles.begin(), handles.end());
  run.set_quiet(wanted == Wanted::kNothing);
  run.set_trace(wanted == Wanted::kTrace);
  for (const VarValue& v : variables) {
    v1::Variable& variable = *run.add_variables();
    variable.set_id(v.id);
    variable.set_value(v.value);
  }
  return request;
}

}  // namespace

RemoteSession::RemoteSession(std::shared_ptr<Connection> connection)
    : connection_(std::move(connection)), stream_(std::make_unique<ExecuteStream>(*connection_)) {}

RemoteSession::~RemoteSession() = default;

uint64_t RemoteSession::NewHandle() { return stream_->NewHandles(1); }

void RemoteSession::Alloc(uint64_t handle, int64_t bytes, std::string_view device) {
  v1::ExecuteRequest request;
  request.mutable_alloc()->set_handle(handle);
  request.mutable_alloc()->set_bytes(static_cast<uint64_t>(bytes));
  request.mutable_alloc()->set_device(std::string(device));
  stream_->Send("alloc", std::move(request), {});
}

void RemoteSession::AllocFile(uint64_t handle, int64_t bytes, const RemoteFile& file) {
  v1::ExecuteRequest request;
  v1::Alloc& alloc = *request.mutable_alloc();
  alloc.set_handle(handle);
  alloc.set_bytes(static_cast<uint64_t>(bytes));
  alloc.set_device(file.device);
  alloc.set_path(file.path);
  alloc.set_file_offset(static_cast<uint64_t>(file.offset));
  switch (file.mode) {
    case RemoteFile::Mode::kRead:
      alloc.set_mode(v1::FILE_MODE_READ);
      break;
    case RemoteFile::Mode::kWrite:
      alloc.set_mode(v1::FILE_MODE_WRITE);
      break;
    case RemoteFile::Mode::kCreate:
      alloc.set_mode(v1::FILE_MODE_CREATE);
      break;
  }
  stream_->Send("alloc", std::move(request), {});
}

void RemoteSession::Free(std::span<const uint64_t> handles) {
  v1::ExecuteRequest request;
  request.mutable_free()->mutable_handles()->Add(handles.begin(), handles.end());
  stream_->Send("free", std::move(request), {});
}

void RemoteSession::Write(uint64_t handle, int64_t offset, std::span<const std::byte> data,
                          std::shared_ptr<const void> keep) {
  v1::ExecuteRequest request;
  request.mutable_write()->set_handle(handle);
  request.mutable_write()->set_offset(static_cast<uint64_t>(offset));
  stream_->Send("write", std::move(request), {}, {data, std::move(keep)});
}

void RemoteSession::Write(uint64_t handle, int64_t offset, std::unique_ptr<TensorReader> content) {
  v1::ExecuteRequest request;
  request.mutable_write()->set_handle(handle);
  request.mutable_write()->set_offset(static_cast<uint64_t>(offset));
  stream_->Send("write", std::move(request), {}, {.file = std::move(content)});
}

void RemoteSession::WriteCopy(uint64_t handle, int64_t offset, std::span<const std::byte> data) {
  auto copy = std::make_shared<std::vector<std::byte>>(data.begin(), data.end());
  const std::span<const std::byte> bytes = *copy;
  Write(handle, offset, bytes, std::move(copy));
}

Future<Done> RemoteSession::Read(uint64_t handle, int64_t offset, std::span<std::byte> into) {
  v1::ExecuteRequest request;
  request.mutable_read()->set_handle(handle);
  request.mutable_read()->set_offset(static_cast<uint64_t>(offset));
  request.mutable_read()->set_bytes(into.size());
  Future<Done> done;
  stream_->Send("read", std::move(request), ReadTarget{into, offset, done});
  return done;
}

Future<bool> RemoteSession::Has(const Digest& hash) {
  v1::ExecuteRequest request;
  request.mutable_has()->set_hash(hash.bytes.data(), hash.bytes.size());
  Future<bool> has;
  stream_->Send("has", std::move(request), has);
  return has;
}

Future<Digest> RemoteSession::Put(UOp root, bool compile) {
  v1::Graph graph;
  ToProto(root, &graph);
  return PutSerialized(graph.SerializeAsString(), compile);
}

Future<Digest> RemoteSession::PutSerialized(std::string graph, bool compile) {
  v1::ExecuteRequest request;
  request.mutable_put()->set_compile(compile);
  auto keep = std::make_shared<const std::string>(std::move(graph));
  Future<Digest> hash;
  stream_->Send("put", std::move(request), hash,
                {std::as_bytes(std::span(keep->data(), keep->size())), keep});
  return hash;
}

Future<RunInfo> RemoteSession::Run(const Digest& hash, std::span<const uint64_t> handles,
                                   std::span<const VarValue> variables) {
  Future<RunInfo> info;
  stream_->Send("run", RunRequest(hash, handles, Wanted::kResult, variables), info);
  return info;
}

Future<RunInfo> RemoteSession::RunTraced(const Digest& hash, std::span<const uint64_t> handles,
                                         std::span<const VarValue> variables) {
  Future<RunInfo> info;
  stream_->Send("run", RunRequest(hash, handles, Wanted::kTrace, variables), info);
  return info;
}

void RemoteSession::RunQuiet(const Digest& hash, std::span<const uint64_t> handles,
                             std::span<const VarValue> variables) {
  stream_->Send("run", RunRequest(hash, handles, Wanted::kNothing, variables), {});
}

Future<Done> RemoteSession::Sync() {
  v1::ExecuteRequest request;
  request.mutable_sync();
  Future<Done> done;
  stream_->Send("sync", std::move(request), done);
  return done;
}

absl::Status RemoteSession::status() const { return stream_->status(/*take=*/false); }
absl::Status RemoteSession::TakeStatus() { return stream_->status(/*take=*/true); }

}  // namespace telegrad
