// What the drivers of GPUs with streams have in common: a table of the functions that differ
// only in their names, and methods for those that differ in form.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/api/peer_table.h"

namespace telegrad::stream {

using Address = unsigned long long;  // NOLINT(google-runtime-int): as CUDA's
using ContextHandle = struct ContextOfDriver*;
using ModuleHandle = struct ModuleOfDriver*;
using FunctionHandle = struct FunctionOfDriver*;
using StreamHandle = struct StreamOfDriver*;
using EventHandle = struct EventOfDriver*;
using GraphHandle = struct GraphOfDriver*;
using NodeHandle = struct NodeOfDriver*;
using ExecHandle = struct ExecOfDriver*;
using HostFunction = void (*)(void* data);

// What stands for memory of another process; that process's driver made it.
struct MemoryHandle {
  char bytes[64];  // NOLINT(modernize-avoid-c-arrays): as the drivers'
};

// Memory that is mapped to addresses; no address, though some drivers declare a pointer.
using PhysicalHandle = unsigned long long;  // NOLINT(google-runtime-int)

// The memory of a device, by the driver's number.
struct MemoryLocation {
  int type = 1;
  int device = 0;
};

// Of memory to be mapped: pinned, as all memory of GPUs is, shared with no process.
struct MemoryProperties {
  int type = 1;
  int handle_types = 0;
  MemoryLocation location;
  void* win32_meta_data = nullptr;
  uint64_t flags = 0;
};
static_assert(sizeof(MemoryProperties) == 32);

// Who may read and write it.
struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;
};
static_assert(sizeof(MemoryAccess) == 12);

// What multiples of bytes and addresses can be mapped.
using GranularityOption = int;
inline constexpr GranularityOption kLeastGranularity = 0;

// Of a driver's function. These numbers, and those of the flags, are the same in all.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kNotReady = 600;
inline constexpr unsigned int kNonBlocking = 1;            // a stream
inline constexpr unsigned int kTimed = 0, kUntimed = 2;    // events
inline constexpr unsigned int kPortable = 1, kMapped = 2;  // pinned memory
inline constexpr unsigned int kLazyPeerAccess = 1;         // imported memory; the one that there is

// A function, with the name that messages have.
template <typename Function>
struct Call;
template <typename... Parameters>
struct Call<Result(Parameters...)> {
  const char* name = "";
  Result (*function)(Parameters...) = nullptr;
  Result operator()(Parameters... parameters) const { return function(parameters...); }
};

struct Calls {
#define STREAM_CALL(role, parameters) Call<Result parameters> role;
#include "devices/stream/calls.def"
#undef STREAM_CALL
};

// How a function ended, under its own name.
struct Called {
  const char* name = "";
  Result result = kSuccess;
};

// A launch, with pointers to its parameters.
struct KernelLaunch {
  FunctionHandle function = nullptr;
  std::array<unsigned int, 3> grid = {1, 1, 1}, group = {1, 1, 1};  // x, y, z
  unsigned int local_bytes = 0;
  void** parameters = nullptr;
};

// A tensor map as kernels take it. What is in it is the driver's business. cuda.h of CUDA 12 aligns
// it to 64, that of 13 to 128.
struct EncodedTensorMap {
  alignas(128) std::array<std::byte, 128> bytes = {};
};
static_assert(sizeof(EncodedTensorMap) == ParameterBytes(ParameterKind::kTensorMap));
static_assert(alignof(EncodedTensorMap) >= ParameterAlignment(ParameterKind::kTensorMap));

// A GPU and its context, and an address there.
struct Place {
  int device = 0;
  ContextHandle context = nullptr;
  Address address = 0;
};

// A program's entry point.
struct Entry {
  FunctionHandle function = nullptr;
  int64_t stack_bytes = 0;  // of a thread, in the GPU's memory
};

// INVALID_ARGUMENT unless a workgroup has 1 to `most` threads.
absl::Status CheckGroup(const GridSize& group, int64_t most);

class Context;
class QueueTable;

// Thread-safe, and never closed: a driver has threads and exit handlers of its own.
class Driver {
 public:
  Driver();
  virtual ~Driver();
  const Calls& calls() const { return calls_; }
  // By the numbers of the GPUs.
  const std::shared_ptr<PeerTable>& peers() const { return peers_; }
  // Of all GPUs of the driver, whose streams wait for each other's events.
  QueueTable& queues() const { return *queues_; }

  // OK, or what the driver says went wrong in `call`.
  virtual absl::Status Check(std::string_view call, Result result) const = 0;
  // Whether the driver refuses all further work in the context.
  virtual bool IsSticky(Result result) const = 0;

  // Workgroups that one launch can have in x, where they have so many threads there.
  virtual int64_t MostGroups(int64_t) const { return INT32_MAX; }
  static constexpr int64_t kMostGroupsAcross = 65535;  // in y, and in z

  virtual Called Retain(int device, ContextHandle* context) const = 0;
  virtual Called Release(int device) const = 0;
  // Gives back all that the context has, and the context, in which nothing is used any more.
  virtual void Reset(int device) const = 0;
  // What waits for the GPU goes on, with this error, where the driver can end that.
  virtual void Lose(const absl::Status&) const {}
  // Whether Reset also ends what is stuck.
  virtual bool EndsStuckWork() const { return false; }
  // Whether its handles are given back by their own functions also after Reset.
  virtual bool ReleasesAfterReset() const { return false; }
  // Of pinned memory that the GPU writes while the host reads it.
  virtual unsigned int SharedHostFlags() const { return kPortable | kMapped; }
  // Makes the context the thread's current one.
  virtual Called Enter(int device, ContextHandle context) const = 0;
  virtual Called CopyAcross(const Place& to, const Place& from, size_t bytes,
                            StreamHandle stream) const = 0;

  // The node of a launch or of a copy in the GPU's own memory; `context` is where it runs. Edges
  // come from `after`.
  virtual Called AddKernel(NodeHandle* node, GraphHandle graph, std::span<const NodeHandle> after,
                           const KernelLaunch& launch) const = 0;
  virtual Called AddCopy(NodeHandle* node, GraphHandle graph, std::span<const NodeHandle> after,
                         ContextHandle context, Address to, Address from, size_t bytes) const = 0;
  virtual Called SetKernel(ExecHandle exec, NodeHandle node, const KernelLaunch& launch) const = 0;
  virtual Called SetCopy(ExecHandle exec, NodeHandle node, ContextHandle context, Address to,
                         Address from, size_t bytes) const = 0;

  // OK where kernels take tensor maps on the GPU of that context; else UNIMPLEMENTED, with what is
  // missing.
  virtual absl::Status TakesTensorMaps(Context& context) const = 0;
  // A map of the tensor at `address`, where they do. In the current context.
  virtual absl::Status EncodeTensorMap(Context&, const TensorMap&, Address,
                                       EncodedTensorMap*) const {
    return absl::InternalError("a driver without tensor maps was given one");
  }

  // Bytes of the GPU's memory that the program's module takes: what of its image is loaded there,
  // so at least. 0 where it is no image, which LoadModule refuses.
  virtual int64_t CodeBytes(const ProgramImage& image) const = 0;
  // In the current context. `log`: what the driver's compiler says.
  virtual Called LoadModule(const ProgramImage& image, ModuleHandle* module,
                            std::string* log) const = 0;
  // The program's entry point, prepared to be launched as the image's signature says.
  // INVALID_ARGUMENT if it has none, or takes or is something else; a workgroup has at most
  // `local_limit` bytes of local memory.
  virtual absl::StatusOr<Entry> Resolve(Context& context, const ProgramImage& image,
                                        int64_t local_limit, ModuleHandle module) const = 0;

 protected:
  Calls calls_;

 private:
  const std::shared_ptr<PeerTable> peers_ = std::make_shared<PeerTable>();
  const std::unique_ptr<QueueTable> queues_;
};

// Calls `role` of the driver through `owner`, whose Check makes a Status of the result.
#define TG_STREAM(owner, role, ...) \
  (owner).Check((owner).calls().role.name, (owner).calls().role(__VA_ARGS__))

}  // namespace telegrad::stream
