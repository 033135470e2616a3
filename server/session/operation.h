// The operations of a session and their answers, independent of any wire format.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/base/strings.h"
#include "engine/execution/executable.h"
#include "engine/ir/graph.h"
#include "engine/types/var_value.h"
#include "server/admin/tracer.h"
#include "server/pool/session_queues.h"

namespace telegrad {

// Received bytes in memory of the transport.
class Payload {
 public:
  virtual ~Payload() = default;
  virtual int64_t size() const = 0;
  virtual void CopyTo(void* to) const = 0;  // size() bytes
};

struct VerifiedGraph {
  FrozenGraph graph;
  Digest hash;
};

struct AllocOp {
  // A part of one of the device's files, see Device::Open.
  struct File {
    std::string path;
    uint64_t offset = 0;
    OpenMode mode = OpenMode::kRead;
  };
  uint64_t handle = 0;
  uint64_t bytes = 0;
  std::string device;
  std::optional<File> file = {};
};
struct FreeOp {
  std::vector<uint64_t> handles;
};
struct WriteOp {
  uint64_t handle = 0;
  uint64_t offset = 0;
  std::unique_ptr<Payload> payload;  // or, as a transfer,
  uint64_t transfer = 0;
  uint64_t bytes = 0;  // that it has

  uint64_t size() const { return payload ? static_cast<uint64_t>(payload->size()) : bytes; }
};
struct ReadOp {
  uint64_t handle = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t transfer = 0;  // 0: the answer has the bytes
};
struct HasOp {
  std::string hash;
};
struct PutOp {
  // Decodes, verifies and hashes; called once, on a worker thread.
  std::function<absl::StatusOr<VerifiedGraph>(Budget*)> decode;
  int64_t bytes = 0;  // serialized
  bool compile = false;
};
// A slot of a graph that was made of a model, see ImportedSlot in compute.proto.
struct ImportedSlot {
  enum class Role : uint8_t { kInput, kOutput, kWeight };
  Role role = Role::kInput;
  std::string name = {};
  std::vector<std::string> model_names = {};
  DType dtype = DType::kVoid;
  Shape shape = {};
  int64_t bytes = 0;
  uint64_t handle = 0;  // of a weight, once it has one
};
struct ImportedModel {
  VerifiedGraph graph;
  int64_t graph_bytes = 0;  // serialized
  std::vector<ImportedSlot> slots;
  int64_t slot_bytes = 0;                  // that these take
  std::vector<std::string_view> contents;  // by slot, of the weights: in the file, or in
  std::shared_ptr<const void> keep;
};
struct ImportOp {
  // Reads, verifies and hashes; called once, on a worker thread. The file outlives the result.
  std::function<absl::StatusOr<ImportedModel>(std::string_view file, Budget*)> decode;
  std::unique_ptr<Payload> payload;  // the file, unless it is in
  uint64_t handle = 0;               // the first `bytes` bytes of this buffer
  uint64_t bytes = 0;
  uint64_t first_handle = 0;  // of the weights: this one and those after it
  std::string device = {};    // of the weights
  bool compile = false;
};
struct RunOp {
  std::string hash;
  std::vector<uint64_t> handles;
  bool quiet = false;
  bool trace = false;
  std::vector<VarValue> variables = {};
  std::vector<std::string> devices =
      {};                              // by the graph's numbers; "": as the slots or the server say
  int64_t timeout_ms = 0;              // from its arrival; 0: none
  std::vector<uint64_t> offsets = {};  // by slot; empty: the whole buffers are bound
  Priority priority = Priority::kNormal;
};
struct CopyOp {
  uint64_t from = 0, from_offset = 0;
  uint64_t to = 0, to_offset = 0;
  uint64_t bytes = 0;
};
struct SyncOp {};

struct Operation {
  uint64_t id = 0;
  int64_t head_bytes = 0;                           // as it was sent, without its payload
  std::shared_ptr<OperationTrace> trace = nullptr;  // if it is traced
  bool trace_goes_on = false;  // it ends later than the operation is done with here
  std::variant<AllocOp, FreeOp, WriteOp, ReadOp, CopyOp, HasOp, PutOp, ImportOp, RunOp, SyncOp> op;
};

// A read that is being sent from device memory. Its buffer is not written before it is destroyed.
class HeldRead {
 public:
  explicit HeldRead(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  ~HeldRead();
  const std::shared_ptr<Memory>& memory() const { return memory_; }

  // Sets the callback of its destruction, in place of an earlier one: only the session that owns
  // the buffer waits for it, and only with its newest callback. The session calls this while it
  // holds a reference. The callback must not block and must not do work of the transport on the
  // destroying thread.
  void OnReleased(std::function<void()> callback);

 private:
  std::shared_ptr<Memory> memory_;
  std::mutex mutex_;
  std::function<void()> released_;
};

struct OpenResult {
  uint64_t session = 0;
  std::string token = {};
  uint64_t epoch = 0;
  int64_t lease_ms = 0, grace_ms = 0;
  uint64_t last_op_id = 0;
};
struct HasResult {
  bool has = false;
};
struct PutResult {
  Digest hash;
  std::optional<RunCost> cost = {};  // where it was compiled
};
struct ImportResult {
  Digest hash;
  std::shared_ptr<const std::vector<ImportedSlot>> slots;
  int64_t slot_bytes = 0;  // that these take
};
// The device events of one run, with descriptions of its kernels.
struct TracedRun {
  RunTrace trace;
  std::shared_ptr<const Executable> executable;
  int64_t submitted_ns = 0, ended_ns = 0;  // SteadyNs
  int64_t most_events = 0;                 // that the answer tells
};
struct RunResult {
  bool cached = false;
  uint32_t kernels = 0;
  uint64_t device_ns = 0;
  uint64_t compile_ns = 0;
  std::shared_ptr<const TracedRun> traced;  // null unless it was asked for
};
struct ReadResult {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string copy = {};                // the bytes, or
  std::shared_ptr<HeldRead> held = {};  // the memory that has them,
  uint64_t at = 0;                      // from this offset
};

// Shortens an error that quotes what a client sent, because errors are kept.
inline absl::Status Clipped(const absl::Status& error) {
  constexpr size_t kMostBytes = 4096;
  if (error.message().size() <= kMostBytes) return error;
  return absl::Status(error.code(), Clip(ToStd(error.message()), kMostBytes));
}

struct Answer {
  uint64_t id = 0;
  absl::Status status;
  std::variant<std::monostate, OpenResult, HasResult, PutResult, ImportResult, RunResult,
               ReadResult>
      result;
};

}  // namespace telegrad
