// Turns each operation into a message of the Execute stream. Writes and reads of many bytes
// travel beside it as transfers (bulk_transfers.h); the rest is in the message.
#include "client/cc/remote_session.h"

#include <utility>

#include "client/cc/bulk_transfers.h"
#include "client/cc/execute_stream.h"
#include "client/cc/shared_memory.h"
#include "engine/base/status.h"
#include "engine/wire/graph_codec.h"
#include "telegrad/v1/graph.pb.h"

namespace telegrad {
namespace {

// From here on a write or read always has a transfer, shorter ones while few have: a server limits
// those of a session that have not ended.
constexpr size_t kLongBytes = 4 << 20;
constexpr int kShortTransfers = 64;

enum class Wanted { kNothing, kResult, kTrace };

void FillRun(const Digest& hash, std::span<const uint64_t> handles, Wanted wanted,
             std::span<const VarValue> variables, v1::Run* out) {
  v1::Run& run = *out;
  run.mutable_hash()->assign(hash.view());
  run.mutable_handles()->Add(handles.begin(), handles.end());
  run.set_quiet(wanted == Wanted::kNothing);
  run.set_trace(wanted == Wanted::kTrace);
  for (const VarValue& v : variables) {
    v1::Variable& variable = *run.add_variables();
    variable.set_id(v.id);
    variable.set_value(v.value);
  }
}

v1::ExecuteRequest RunRequest(const Digest& hash, std::span<const uint64_t> handles, Wanted wanted,
                              std::span<const VarValue> variables) {
  v1::ExecuteRequest request;
  FillRun(hash, handles, wanted, variables, request.mutable_run());
  return request;
}

Completion Telling(const Future<Done>* told) {
  if (told == nullptr) return {};
  return Told{*told};
}

}  // namespace

RemoteSession::RemoteSession(std::shared_ptr<Connection> connection, const SessionOptions& options)
    : connection_(std::move(connection)),
      stream_(std::make_unique<ExecuteStream>(*connection_, options, &meter_)) {
  if (connection_->options().data_streams == 0) return;
  bulk_ = std::make_unique<BulkTransfers>(
      connection_.get(), stream_->ticket(), &meter_,
      [stream = stream_.get()](const absl::Status& why) { stream->Abandon(why); });
}

RemoteSession::~RemoteSession() {
  if (bulk_ != nullptr) bulk_->Close();
  stream_.reset();  // gives every future its result, also those that bulk_ waits for
}

bool RemoteSession::TravelsBeside(size_t bytes) {
  if (bulk_ == nullptr || bytes < connection_->options().bulk_bytes) return false;
  if (bytes >= kLongBytes) return true;
  const bool few = short_transfers_->fetch_add(1) < kShortTransfers;
  if (!few) short_transfers_->fetch_sub(1);
  return few;
}

void RemoteSession::CountEnd(size_t bytes, const Future<Done>& ended) const {
  if (bytes >= kLongBytes) return;
  ended.Then([count = short_transfers_](const absl::StatusOr<Done>&) { count->fetch_sub(1); });
}

uint64_t RemoteSession::NewHandle() { return stream_->NewHandles(1); }

void RemoteSession::Alloc(uint64_t handle, int64_t bytes, std::string_view device) {
  v1::ExecuteRequest request;
  request.mutable_alloc()->set_handle(handle);
  request.mutable_alloc()->set_bytes(static_cast<uint64_t>(bytes));
  request.mutable_alloc()->set_device(device.empty() ? connection_->options().device
                                                     : std::string(device));
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
  Write(handle, offset, data, std::move(keep), nullptr);
}

bool RemoteSession::WriteTold(uint64_t handle, int64_t offset, std::span<const std::byte> data,
                              std::shared_ptr<const void> keep, const Future<Done>& told) {
  return Write(handle, offset, data, std::move(keep), &told);
}

bool RemoteSession::Write(uint64_t handle, int64_t offset, std::span<const std::byte> data,
                          std::shared_ptr<const void> keep, const Future<Done>* told) {
  v1::ExecuteRequest request;
  request.mutable_write()->set_handle(handle);
  request.mutable_write()->set_offset(static_cast<uint64_t>(offset));
  if (!TravelsBeside(data.size())) {
    stream_->Send("write", std::move(request), Telling(told), {data, std::move(keep)});
    return false;
  }
  request.mutable_write()->set_bytes(data.size());
  const uint64_t transfer = SendTransfer(std::move(request), nullptr, told);
  bulk_->Upload(transfer, data, std::move(keep));
  const Future<Done> acknowledged = Sync();
  CountEnd(data.size(), acknowledged);
  bulk_->EndUpload(transfer, acknowledged);
  return true;
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
  Future<Done> done;
  ReadTold(handle, offset, into, done);
  return done;
}

void RemoteSession::ReadTold(uint64_t handle, int64_t offset, std::span<std::byte> into,
                             const Future<Done>& done, std::shared_ptr<LentMemory> lent) {
  v1::ExecuteRequest request;
  request.mutable_read()->set_handle(handle);
  request.mutable_read()->set_offset(static_cast<uint64_t>(offset));
  request.mutable_read()->set_bytes(into.size());
  if (!TravelsBeside(into.size())) {
    stream_->Send("read", std::move(request), ReadTarget{into, offset, done, std::move(lent)});
    return;
  }
  CountEnd(into.size(), done);
  Future<Done> ready;
  bulk_->Download(SendTransfer(std::move(request), &ready), into, std::move(lent), ready, done);
}

// Numbers ascend in the order of the operations.
uint64_t RemoteSession::SendTransfer(v1::ExecuteRequest request, const Future<Done>* ready,
                                     const Future<Done>* told) {
  MutexLock lock(transfer_mutex_);
  const uint64_t transfer = ++last_transfer_;
  if (ready == nullptr) {
    request.mutable_write()->set_transfer(transfer);
    stream_->Send("write", std::move(request), Telling(told));
  } else {
    request.mutable_read()->set_transfer(transfer);
    const auto offset = static_cast<int64_t>(request.read().offset());
    stream_->Send("read", std::move(request), ReadTarget{{}, offset, *ready});
  }
  return transfer;
}

absl::Status RemoteSession::Show(const char* verb, uint64_t transfer, const SharedMemory& memory) {
  TG_ASSIGN_OR_RETURN(const SessionTicket ticket, stream_->ticket().Get());
  LocalDoor* door;
  {
    MutexLock lock(door_mutex_);
    if (door_ == nullptr) {
      TG_ASSIGN_OR_RETURN(door_, LocalDoor::Open(connection_->server().local_socket));
    }
    door = door_.get();
  }
  std::string request = StrCat(verb, " ");
  for (const char c : ticket.token) {
    constexpr char kDigits[] = "0123456789abcdef";
    request += kDigits[static_cast<uint8_t>(c) >> 4];
    request += kDigits[static_cast<uint8_t>(c) & 15];
  }
  StrAppend(&request, " ", ticket.epoch, " ", transfer, " 0 ", memory.bytes().size());
  return door->Ask(request, memory.fd()).status();
}

absl::Status RemoteSession::WriteShared(uint64_t handle, int64_t offset,
                                        const SharedMemory& memory) {
  if (connection_->server().local_socket.empty()) {
    return FailedPrecondition(
        "the server shares no memory; start it with --local-socket and --local-memory");
  }
  v1::ExecuteRequest request;
  request.mutable_write()->set_handle(handle);
  request.mutable_write()->set_offset(static_cast<uint64_t>(offset));
  request.mutable_write()->set_bytes(memory.bytes().size());
  const uint64_t transfer = SendTransfer(std::move(request), nullptr);
  absl::Status shown = Show("upload", transfer, memory);
  if (!shown.ok()) stream_->Abandon(shown);  // nothing that follows the operation would begin
  return shown;
}

absl::Status RemoteSession::ReadShared(uint64_t handle, int64_t offset,
                                       const SharedMemory& memory) {
  if (connection_->server().local_socket.empty()) {
    return FailedPrecondition(
        "the server shares no memory; start it with --local-socket and --local-memory");
  }
  v1::ExecuteRequest request;
  request.mutable_read()->set_handle(handle);
  request.mutable_read()->set_offset(static_cast<uint64_t>(offset));
  request.mutable_read()->set_bytes(memory.bytes().size());
  Future<Done> ready;
  const uint64_t transfer = SendTransfer(std::move(request), &ready);
  TG_RETURN_IF_ERROR(ready.Get().status());
  return Show("download", transfer, memory);
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
  if (const std::string& device = connection_->options().device; compile && !device.empty()) {
    request.mutable_put()->add_devices(device);
  }
  auto keep = std::make_shared<const std::string>(std::move(graph));
  Future<Digest> hash;
  stream_->Send("put", std::move(request), hash,
                {std::as_bytes(std::span(keep->data(), keep->size())), keep});
  return hash;
}

Future<RunInfo> RemoteSession::Run(const Digest& hash, std::span<const uint64_t> handles,
                                   std::span<const VarValue> variables, uint32_t timeout_ms,
                                   Priority priority) {
  Future<RunInfo> info;
  v1::ExecuteRequest request = RunRequest(hash, handles, Wanted::kResult, variables);
  request.mutable_run()->set_timeout_ms(timeout_ms);
  request.mutable_run()->set_priority(priority == Priority::kLow    ? v1::Run::LOW
                                      : priority == Priority::kHigh ? v1::Run::HIGH
                                                                    : v1::Run::NORMAL);
  stream_->Send("run", std::move(request), info);
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

void RemoteSession::AllocTold(uint64_t handle, int64_t bytes, std::string_view device,
                              const Future<Done>& told) {
  v1::ExecuteRequest request;
  request.mutable_alloc()->set_handle(handle);
  request.mutable_alloc()->set_bytes(static_cast<uint64_t>(bytes));
  request.mutable_alloc()->set_device(std::string(device));
  stream_->Send("alloc", std::move(request), Told{told});
}

void RemoteSession::CopyTold(uint64_t to, int64_t to_offset, uint64_t from, int64_t from_offset,
                             int64_t bytes, const Future<Done>& told) {
  v1::ExecuteRequest request;
  v1::Copy& copy = *request.mutable_copy();
  copy.set_to(to);
  copy.set_to_offset(static_cast<uint64_t>(to_offset));
  copy.set_from(from);
  copy.set_from_offset(static_cast<uint64_t>(from_offset));
  copy.set_bytes(static_cast<uint64_t>(bytes));
  stream_->Send("copy", std::move(request), Told{told});
}

void RemoteSession::AdmitPeerTold(const std::string& peer_key, int64_t bytes, absl::Duration limit,
                                  const Future<PeerTicket>& told) {
  stream_->ticket().Then([=, connection = connection_](const absl::StatusOr<SessionTicket>& own) {
    if (!own.ok()) return told.Set(own.status());
    AdmitPeer(connection, *own, peer_key, static_cast<uint64_t>(bytes), limit, told);
  });
}

void RemoteSession::SendTold(uint64_t handle, int64_t offset, int64_t bytes,
                             std::string_view address, const PeerTicket& ticket,
                             const Future<Done>& told) {
  v1::ExecuteRequest request;
  v1::Send& send = *request.mutable_send();
  send.set_handle(handle);
  send.set_offset(static_cast<uint64_t>(offset));
  send.set_bytes(static_cast<uint64_t>(bytes));
  send.set_address(std::string(address));
  send.set_transfer(ticket.transfer);
  send.set_identity(ticket.identity);
  send.set_secret(ticket.secret);
  send.set_tls(ticket.tls);
  stream_->Send("send", std::move(request), Told{told});
}

void RemoteSession::ReceiveTold(uint64_t handle, int64_t offset, int64_t bytes, uint64_t transfer,
                                const Future<Done>& told) {
  v1::ExecuteRequest request;
  v1::Receive& receive = *request.mutable_receive();
  receive.set_handle(handle);
  receive.set_offset(static_cast<uint64_t>(offset));
  receive.set_bytes(static_cast<uint64_t>(bytes));
  receive.set_transfer(transfer);
  stream_->Send("receive", std::move(request), Told{told});
}

// The message is one for all runs of a thread, so that a run allocates nothing for it. A run that
// is sent has it alone: Send may do what the thread has put off, and that may send another run.
uint64_t RemoteSession::RunTold(const Digest& hash, const RunParts& parts,
                                std::shared_ptr<RunSink> sink, uint64_t which) {
  thread_local v1::ExecuteRequest spare;
  v1::ExecuteRequest request;
  request.Swap(&spare);
  v1::Run& run = *request.mutable_run();
  run.Clear();
  FillRun(hash, parts.handles, parts.trace ? Wanted::kTrace : Wanted::kResult, parts.variables,
          &run);
  run.mutable_offsets()->Add(parts.offsets.begin(), parts.offsets.end());
  run.mutable_devices()->Add(parts.devices.begin(), parts.devices.end());
  const uint64_t number =
      stream_->Send("run", std::move(request), RunTellsSink{std::move(sink), which});
  request.Swap(&spare);
  return number;
}

Future<PutInfo> RemoteSession::PutTold(std::string graph, std::span<const std::string> devices) {
  v1::ExecuteRequest request;
  request.mutable_put()->set_compile(!devices.empty());
  request.mutable_put()->mutable_devices()->Add(devices.begin(), devices.end());
  auto keep = std::make_shared<const std::string>(std::move(graph));
  Future<PutInfo> info;
  stream_->Send("put", std::move(request), info,
                {std::as_bytes(std::span(keep->data(), keep->size())), keep});
  return info;
}

Future<HasInfo> RemoteSession::HasTold(const Digest& hash, std::span<const std::string> devices,
                                       std::span<const VarValue> variables) {
  v1::ExecuteRequest request;
  v1::Has& has = *request.mutable_has();
  has.mutable_hash()->assign(hash.view());
  has.set_compile(true);
  has.mutable_devices()->Add(devices.begin(), devices.end());
  for (const VarValue& v : variables) {
    v1::Variable& variable = *has.add_variables();
    variable.set_id(v.id);
    variable.set_value(v.value);
  }
  Future<HasInfo> info;
  stream_->Send("has", std::move(request), info);
  return info;
}

bool RemoteSession::HasRoom(size_t operations) const { return stream_->HasRoom(operations); }
uint64_t RemoteSession::NextOperation() const { return stream_->next_operation(); }
void RemoteSession::Cancel(uint64_t first, uint64_t last) { stream_->Cancel(first, last); }
absl::Status RemoteSession::Over() const { return stream_->Over(); }

void RemoteSession::Cancel() { stream_->Cancel(); }

Future<Done> RemoteSession::Sync() {
  Future<Done> done;
  SyncTold(done);
  return done;
}

void RemoteSession::SyncTold(const Future<Done>& told) {
  v1::ExecuteRequest request;
  request.mutable_sync();
  stream_->Send("sync", std::move(request), told);
}

absl::Status RemoteSession::status() const { return stream_->status(/*take=*/false); }
absl::Status RemoteSession::TakeStatus() { return stream_->status(/*take=*/true); }

}  // namespace telegrad
