// A session on a server: buffers under handles, and operations that are sent without waiting for
// answers. They take effect in order. When an operation fails, its future has the error, operations
// that depend on it fail too, and status() keeps the first error with the operation it belongs to.
//
// Thread-safe; operations of one thread keep their order. Each may block for room when the session
// is far behind, so none may be called from a Future's callback.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/cc/connection.h"
#include "client/cc/future.h"
#include "client/cc/peer_admission.h"
#include "client/cc/transfer_meter.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "engine/ir/graph.h"
#include "engine/types/form_cost.h"
#include "engine/types/var_value.h"

namespace telegrad {

namespace v1 {
class ExecuteRequest;
}

// What the devices did for a run; see RunTrace in compute.proto.
struct RunEvent {
  bool copy = false;  // else a launch
  std::string name;
  std::string queue;
  int64_t begin_ns = 0;  // since the device got the run
  int64_t duration_ns = 0;
  double flops = 0;
  double bytes = 0;
  std::vector<std::string> reasons;
};
struct RunEvents {
  std::vector<RunEvent> events;
  int64_t dropped = 0;
  int64_t end_ns = 0;
};

// How a run went; see RunResult in compute.proto.
struct RunInfo {
  bool cached = false;
  int kernels = 0;
  int64_t device_ns = 0;
  int64_t compile_ns = 0;
  std::shared_ptr<const RunEvents> trace;  // null unless it was asked for
};

// What takes the results of many runs, for which a Future each would be much.
class RunSink {
 public:
  virtual ~RunSink() = default;
  // As a Future's callback. `which` is what the run was given.
  virtual void OnRun(uint64_t which, const absl::StatusOr<RunInfo>& info) = 0;
};

// What a server says of a graph; see PutResult in compute.proto.
struct PutInfo {
  Digest hash;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
  double launch_seconds = 0;
  int64_t temporary_bytes = 0;
};

// What a server says of a graph that it is asked for by hash; see HasResult in compute.proto.
struct HasInfo {
  bool has = false;
  std::optional<FormCost<PutInfo>> cost = {};  // without the hash
};

// A part of a file of the server, on one of its disk devices; see Alloc in data.proto.
struct RemoteFile {
  enum class Mode { kRead, kWrite, kCreate };
  std::string device;  // "DISK:models"
  std::string path;    // below its root
  int64_t offset = 0;
  Mode mode = Mode::kRead;
};

// Kernels that a server is compiling for a session, or has compiled last; see KeepAliveResponse in
// session.proto.
struct CompileProgress {
  int64_t done = 0;
  int64_t total = 0;
};

class BulkTransfers;
class ExecuteStream;
class LentMemory;
class LocalDoor;
class SharedMemory;
class TensorReader;
struct RemoteImportOptions;
struct RemoteModel;

class RemoteSession {
 public:
  RemoteSession(std::shared_ptr<Connection> connection, const SessionOptions& options);
  // Ends the session at once: operations under way are dropped and everything on the server is
  // freed. Waits until no memory passed to Write or Read is in use any more.
  ~RemoteSession();

  // A handle that this session has not used.
  uint64_t NewHandle();

  // On a device of ListDevices; "": on that of ConnectOptions. Runs are where their buffers are.
  void Alloc(uint64_t handle, int64_t bytes, std::string_view device = "");
  // A buffer whose bytes are `bytes` bytes of the file.
  void AllocFile(uint64_t handle, int64_t bytes, const RemoteFile& file);
  void Free(std::span<const uint64_t> handles);
  void Free(uint64_t handle) { Free(std::span(&handle, 1)); }

  // Sends without a copy: `data` must stay unchanged until a later operation has been answered
  // without an error of the connection, or until this object is destroyed. `keep`, if given, is
  // held as long.
  void Write(uint64_t handle, int64_t offset, std::span<const std::byte> data,
             std::shared_ptr<const void> keep = nullptr);
  // The content of a tensor of a file, read as it is sent, a few chunks of it in memory at a time.
  // If it cannot be read to its end, that becomes the session's error, and the buffer is freed.
  void Write(uint64_t handle, int64_t offset, std::unique_ptr<TensorReader> content);
  // The same as the first with a copy of `data`.
  void WriteCopy(uint64_t handle, int64_t offset, std::span<const std::byte> data);

  // Fills `into`, which must exist until the future has its result or this object is destroyed.
  Future<Done> Read(uint64_t handle, int64_t offset, std::span<std::byte> into);

  // Through memory shared with a server of this machine that offers it (--local-memory): all of
  // `memory` to or from the buffer at `offset`. Write returns once the server has the memory, which
  // must stay unchanged until a later operation is answered; Read when the bytes are there.
  absl::Status WriteShared(uint64_t handle, int64_t offset, const SharedMemory& memory);
  absl::Status ReadShared(uint64_t handle, int64_t offset, const SharedMemory& memory);

  Future<bool> Has(const Digest& hash);
  // A tensor-level graph. `compile`: at once, for the device of ConnectOptions, not at its first
  // run.
  Future<Digest> Put(UOp root, bool compile = false);
  Future<Digest> PutSerialized(std::string graph, bool compile = false);  // a telegrad.v1.Graph

  // Has the server import a model file: the bytes given, which must stay unchanged like those of
  // Write, or the first `bytes` bytes of a buffer. All or nothing. See remote_import.h.
  Future<RemoteModel> Import(std::span<const std::byte> file, const RemoteImportOptions& options,
                             std::shared_ptr<const void> keep = nullptr);
  Future<RemoteModel> Import(uint64_t handle, int64_t bytes, const RemoteImportOptions& options);

  // `variables`: the values of the graph's VARs, each id once. `timeout_ms`, if not 0, counts from
  // the run's arrival at the server. `priority` orders the waiting runs of this client's tenant.
  enum class Priority { kNormal, kLow, kHigh };
  Future<RunInfo> Run(const Digest& hash, std::span<const uint64_t> handles,
                      std::span<const VarValue> variables = {}, uint32_t timeout_ms = 0,
                      Priority priority = Priority::kNormal);
  // The same, and the answer has a trace of the run. One at a time: a second one is refused until
  // the answer to the first is being sent.
  Future<RunInfo> RunTraced(const Digest& hash, std::span<const uint64_t> handles,
                            std::span<const VarValue> variables = {});
  // Without an answer unless it fails.
  void RunQuiet(const Digest& hash, std::span<const uint64_t> handles,
                std::span<const VarValue> variables = {});

  // Cancels all operations so far: those that have not begun do not begin, and a running run ends
  // at its next segment. They fail with CANCELLED, and the buffers that they would have written are
  // poisoned.
  void Cancel();

  // Answered when everything before it has taken effect: the session's first error, or OK.
  Future<Done> Sync();

  // The first error so far, beginning with the operation it belongs to.
  absl::Status status() const;
  // The same, and clears it, so that Sync reports later ones. Errors of the connection stay.
  absl::Status TakeStatus();

  // What of the writes, reads, graphs and models so far has been sent or received.
  TransferAmount transferred() const { return meter_.amount(); }
  // Asks the server, which has one second to answer; nothing while the session is not open. A
  // server that does not count kernels answers with none.
  absl::StatusOr<CompileProgress> Compiling() const;

  const Connection& connection() const { return *connection_; }

  // For callers that send operations of others, and must neither wait for room nor mix up their
  // errors. `told` is set when an answer to this or a later operation shows how the operation
  // ended; a caller without a later operation sends Sync.
  void AllocTold(uint64_t handle, int64_t bytes, std::string_view device, const Future<Done>& told);
  // Returns whether it was sent with a Sync behind it.
  bool WriteTold(uint64_t handle, int64_t offset, std::span<const std::byte> data,
                 std::shared_ptr<const void> keep, const Future<Done>& told);
  // Between two parts that do not overlap; needs ServerInfo::copies.
  void CopyTold(uint64_t to, int64_t to_offset, uint64_t from, int64_t from_offset, int64_t bytes,
                const Future<Done>& told);
  // From a buffer of this session to one of another server's, which has admitted a transfer for it:
  // see Send and Receive in data.proto. Needs ServerInfo::peer_key on both sides.
  void AdmitPeerTold(const std::string& peer_key, int64_t bytes, absl::Duration limit,
                     const Future<PeerTicket>& told);
  void SendTold(uint64_t handle, int64_t offset, int64_t bytes, std::string_view address,
                const PeerTicket& ticket, const Future<Done>& told);
  void ReceiveTold(uint64_t handle, int64_t offset, int64_t bytes, uint64_t transfer,
                   const Future<Done>& told);
  struct RunParts {
    std::span<const uint64_t> handles;
    std::span<const uint64_t> offsets;  // of each part in its buffer; needs ServerInfo::binds_parts
    std::span<const VarValue> variables = {};
    std::span<const std::string> devices = {};  // by the graph's numbers
    bool trace = false;
  };
  // `which` is what the sink knows the run by. Returns the number of the operation, see Cancel; 0
  // if the session is over.
  uint64_t RunTold(const Digest& hash, const RunParts& parts, std::shared_ptr<RunSink> sink,
                   uint64_t which);
  // `lent`, if given, decides over `into`: once it is taken back the bytes are dropped, and only
  // who took it back tells that the read has ended.
  void ReadTold(uint64_t handle, int64_t offset, std::span<std::byte> into,
                const Future<Done>& told, std::shared_ptr<LentMemory> lent = nullptr);
  void SyncTold(const Future<Done>& told);
  // Compiles the graph at once for `devices`, by the graph's numbers, and tells what runs there are
  // predicted to take. Without devices the graph is only stored.
  Future<PutInfo> PutTold(std::string graph, std::span<const std::string> devices);
  // Whether the graph is there, and if so, what runs there with these values and such as have the
  // same code are predicted to take: it is compiled for them at once. No cost: the server is of an
  // earlier release.
  Future<HasInfo> HasTold(const Digest& hash, std::span<const std::string> devices,
                          std::span<const VarValue> variables);
  // Whether so many more operations can be sent without waiting.
  bool HasRoom(size_t operations) const;
  // The number that the next operation will have.
  uint64_t NextOperation() const;
  // As Cancel, of the operations from `first` to `last`.
  void Cancel(uint64_t first, uint64_t last);
  // OK, or why the session is over: nothing that was or will be asked of it comes about.
  absl::Status Over() const;

 private:
  // Whether a write or read of so many bytes has a transfer; then its end is counted, too.
  bool TravelsBeside(size_t bytes);
  void CountEnd(size_t bytes, const Future<Done>& ended) const;
  // Sends the operation under the next number for a transfer, which it returns.
  uint64_t SendTransfer(v1::ExecuteRequest request, const Future<Done>* ready,
                        const Future<Done>* told = nullptr);
  bool Write(uint64_t handle, int64_t offset, std::span<const std::byte> data,
             std::shared_ptr<const void> keep, const Future<Done>* told);
  absl::Status Show(const char* verb, uint64_t transfer, const SharedMemory& memory);

  const std::shared_ptr<Connection> connection_;
  TransferMeter meter_;
  const std::shared_ptr<std::atomic<int>> short_transfers_ = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<BulkTransfers> bulk_;  // null: everything travels on the stream
  std::unique_ptr<ExecuteStream> stream_;
  Mutex transfer_mutex_;  // held while an operation is sent that names a transfer
  uint64_t last_transfer_ TG_GUARDED_BY(transfer_mutex_) = 0;
  Mutex door_mutex_;
  std::unique_ptr<LocalDoor> door_ TG_GUARDED_BY(door_mutex_);  // once memory is shared, for good
};

}  // namespace telegrad
