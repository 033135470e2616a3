// The device contract: memory, programs and queues. Everything that runs is asynchronous: a
// submission names the timeline points it waits for and returns the point it will signal. A wait
// for a failed point fails the submission with the same Status, and so everything that depends on
// it, and nothing else.
//
// Thread-safe. Drivers include this folder, base and types; never the IR.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/cancellation.h"
#include "devices/api/memory.h"
#include "devices/api/sensors.h"
#include "devices/api/timeline.h"
#include "devices/api/trace.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/types/arithmetic.h"
#include "engine/types/program_signature.h"
#include "engine/types/target.h"
#include "engine/types/tensor_map.h"

namespace telegrad {

// What a compiler made for a target, and what its launches pass. For a device of the tensor level,
// a serialized tensor graph, which has no signature.
struct ProgramImage {
  std::string name;  // the entry point
  std::string binary;
  ProgramSignature signature = {};
  std::string hash = {};  // of a tensor graph: its content hash, if it is known
};

// What one run of a tensor graph is predicted to take of the device that it was loaded on; 0:
// unknown.
struct GraphCost {
  double flops = 0;
  double bytes = 0;  // moved
  double seconds = 0;
  double launch_seconds = 0;  // of the longest launch
  int64_t temporary_bytes = 0;
};

class LoadedProgram {
 public:
  LoadedProgram() = default;
  explicit LoadedProgram(ProgramSignature signature) : signature_(std::move(signature)) {}
  virtual ~LoadedProgram() = default;
  // What launches pass; null for a tensor graph, which takes a buffer for each of its slots.
  const ProgramSignature* signature() const { return signature_ ? &*signature_ : nullptr; }
  // Of a tensor graph: what its device predicts that one run takes, once it has told.
  virtual GraphCost cost() const { return {}; }

 private:
  const std::optional<ProgramSignature> signature_;
};

// A part of one of the buffers bound at submission, from an offset on.
struct BoundPart {
  int32_t binding = 0;  // which of Submit's bindings
  int64_t offset = 0;   // bytes into it
};

// What a program does with a buffer.
enum class BufferAccess : uint8_t { kRead = 1, kWrite = 2, kReadWrite = 3 };

// What a launch passes as one of its program's parameters: a buffer, a map of a tensor in a buffer,
// or a scalar, which is either the same in each submission or one of the values that come with it.
class LaunchArgument {
 public:
  LaunchArgument(int32_t binding, int64_t offset, BufferAccess access = BufferAccess::kReadWrite)
      : index_(binding), access_(access), word_(static_cast<uint64_t>(offset)) {}
  // Of the tensor whose first element is at `offset`.
  static LaunchArgument Map(const TensorMap& map, int32_t binding, int64_t offset,
                            BufferAccess access = BufferAccess::kReadWrite) {
    LaunchArgument out(binding, offset, access);
    out.kind_ = ParameterKind::kTensorMap;
    out.map_ = std::make_shared<const TensorMap>(map);
    return out;
  }
  static LaunchArgument Scalar32(uint32_t bits) { return {ParameterKind::kScalar32, -1, bits}; }
  static LaunchArgument Scalar64(uint64_t bits) { return {ParameterKind::kScalar64, -1, bits}; }
  // Number `index` of the submission's scalars; of 32 bits, its lower ones.
  static LaunchArgument Scalar32At(int32_t index) { return {ParameterKind::kScalar32, index, 0}; }
  static LaunchArgument Scalar64At(int32_t index) { return {ParameterKind::kScalar64, index, 0}; }

  ParameterKind kind() const { return kind_; }
  bool is_buffer() const { return kind_ == ParameterKind::kBuffer; }
  // Whether it is of memory that is bound at submission: a buffer or a tensor map, of which:
  bool is_bound() const { return is_buffer() || map_ != nullptr; }
  BoundPart part() const { return {index_, static_cast<int64_t>(word_)}; }
  BufferAccess access() const { return access_; }
  bool writes() const { return is_bound() && access_ != BufferAccess::kRead; }
  // Of a tensor map; else null.
  const TensorMap* map() const { return map_.get(); }
  // Of a scalar:
  bool is_constant() const { return index_ == -1; }
  int32_t scalar() const { return index_; }    // unless it is constant
  uint64_t constant() const { return word_; }  // where it is
  // In a submission of these scalars.
  uint64_t bits(std::span<const uint64_t> scalars) const {
    return is_constant() ? word_ : scalars[static_cast<size_t>(index_)];
  }

 private:
  LaunchArgument(ParameterKind kind, int32_t index, uint64_t bits)
      : index_(index), kind_(kind), word_(bits) {}

  int32_t index_ = 0;  // a binding; of a scalar, its number or -1
  ParameterKind kind_ = ParameterKind::kBuffer;
  BufferAccess access_ = BufferAccess::kRead;
  uint64_t word_ = 0;  // an offset into the binding; a constant's bits
  std::shared_ptr<const TensorMap> map_;
};

// One launch of a command buffer. It runs the workgroups of a grid, on as many of the device's
// workers as are worth it: those numbered begin to begin + grid.x in x, and all in y and z.
struct Launch {
  using Argument = LaunchArgument;

  // Of one workgroup, as the program wants it.
  static Launch Of(std::shared_ptr<LoadedProgram> program) {
    Launch out;
    if (const ProgramSignature* signature = program->signature()) {
      out.group = signature->group;
      out.local_bytes = signature->local_bytes;
    }
    out.program = std::move(program);
    return out;
  }

  std::shared_ptr<LoadedProgram> program;
  std::vector<Argument> arguments;  // for the parameters of the program's signature but kBegin
  int64_t begin = 0;
  GridSize grid;   // workgroups
  GridSize group;  // threads of each, which are the program's
  int64_t local_bytes = 0;
  double flops = 0;  // predicted, with bytes: decides how many workers are worth waking
  double bytes = 0;
  std::string name;  // for traces
  // Of a program that is a tensor graph: the ids of its variables, whose values are arguments of 64
  // bits behind the buffers, in this order.
  std::vector<int64_t> variables = {};
  // A submission may need only a part of the launch. Each of these is the index of the scalar of
  // the submission that says how much, or -1: all of it. A device may do more, up to all.
  int32_t groups = -1;  // how many workgroups in x, of the whole grid from 0 on, do anything
  int32_t share = -1;   // the part of flops and bytes, as the bits of a double

  // Of a submission with these scalars: workgroups in x, at least one if there are any at all.
  int64_t GroupsOf(std::span<const uint64_t> scalars) const {
    if (groups < 0) return grid.x;
    // Without a sign: a number that is greater than any grid is all of them.
    const uint64_t all = scalars[static_cast<size_t>(groups)], first = static_cast<uint64_t>(begin);
    if (all <= first) return std::min<int64_t>(grid.x, 1);
    return static_cast<int64_t>(std::min(all - first, static_cast<uint64_t>(grid.x)));
  }
  // The part of a launch with this `share`; 1 where the scalar is no number from 0 to 1.
  static double PartOf(int32_t share, std::span<const uint64_t> scalars) {
    if (share < 0) return 1;
    const auto part = std::bit_cast<double>(scalars[static_cast<size_t>(share)]);
    return part >= 0 && part <= 1 ? part : 1;
  }
};

// Copies from one bound buffer to another, or within one; source and destination may not overlap.
// The two may lie in memories of different devices: a device reaches its own memory and all that
// the host can address.
struct CopyBytes {
  BoundPart to, from;
  int64_t length = 0;
};

struct Command {
  using Kind = CommandKind;
  Kind kind = Kind::kLaunch;
  Launch launch;
  CopyBytes copy;
};

// A kind of work: launches, copies, and of these the ones out of the device's memory to elsewhere.
enum class QueueKind : uint8_t { kCompute, kCopy, kCopyOut };

// The kinds of work that a queue takes, or that commands are of.
struct QueueCapability {
  bool compute = false;
  bool copy = false;

  bool Has(QueueKind kind) const { return kind == QueueKind::kCompute ? compute : copy; }
  friend bool operator==(const QueueCapability&, const QueueCapability&) = default;
};
// So that long copies and long kernels do not wait for each other, a queue may take copies only.
inline constexpr QueueCapability kComputesAndCopies{.compute = true, .copy = true};
inline constexpr QueueCapability kCopiesOnly{.copy = true};

// Commands encoded once for a device, replayed with different bindings and scalars. Immutable.
class CommandBuffer {
 public:
  virtual ~CommandBuffer() = default;
  // How many values a submission has for its launches' arguments.
  size_t scalars() const { return scalars_; }
  // The kinds of work that are among them.
  const QueueCapability& needs() const { return needs_; }

 protected:
  size_t scalars_ = 0;
  QueueCapability needs_;
};

// What is submitted to a queue.
struct QueueWork {
  std::shared_ptr<const CommandBuffer> commands;
  std::vector<BufferView> bindings;
  std::vector<uint64_t> scalars;         // as many as the commands have
  std::shared_ptr<RunTrace> trace = {};  // may be null, as the next
  std::shared_ptr<const Cancellation> cancellation = {};
  // The submitter does nothing until the point is reached, so that the work may run on its thread.
  bool submitter_waits = false;
};

// Each queue of a device has a timeline of its own. Queues run at the same time; what must be
// ordered between two of them waits for a point.
class Queue {
 public:
  Queue(std::string name, QueueCapability takes) : name_(std::move(name)), takes_(takes) {}
  virtual ~Queue() = default;

  // "CPU:0 copy": its device's and its own, as traces and errors have it.
  const std::string& name() const { return name_; }
  // What may be submitted to it.
  const QueueCapability& takes() const { return takes_; }

  // Enqueues the commands, in order, after everything submitted to this queue before and after
  // `waits`. Returns at once with the point that is reached when they have ended; the point fails
  // with the first command that does, and the commands behind that one do not run.
  // INVALID_ARGUMENT for commands of another device or of a kind that this queue does not take,
  // bindings that do not fit them or that this device cannot reach, another number of scalars than
  // theirs, or a wait for a point of this queue that is not submitted yet.
  // RESOURCE_EXHAUSTED when the queue is full. `trace` and `cancellation` may be null; a cancelled
  // submission ends before its next command, with CANCELLED.
  absl::StatusOr<TimelinePoint> Submit(std::shared_ptr<const CommandBuffer> commands,
                                       std::vector<BufferView> bindings,
                                       std::span<const TimelinePoint> waits,
                                       std::shared_ptr<RunTrace> trace = nullptr,
                                       std::shared_ptr<const Cancellation> cancellation = nullptr,
                                       std::vector<uint64_t> scalars = {}) {
    return Submit({std::move(commands), std::move(bindings), std::move(scalars), std::move(trace),
                   std::move(cancellation)},
                  waits);
  }
  absl::StatusOr<TimelinePoint> Submit(QueueWork work, std::span<const TimelinePoint> waits) {
    if (work.commands != nullptr) TG_RETURN_IF_ERROR(CheckCommands(*work.commands, work.scalars));
    return Enqueue(std::move(work), waits);
  }

  // The point of the last submission: reached when the queue is idle.
  virtual TimelinePoint last() const = 0;

 private:
  // Of as many scalars as the commands have, and of kinds that it takes.
  virtual absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                                std::span<const TimelinePoint> waits) = 0;
  absl::Status CheckCommands(const CommandBuffer& commands,
                             std::span<const uint64_t> scalars) const;

  const std::string name_;
  const QueueCapability takes_;
};

inline absl::Status Queue::CheckCommands(const CommandBuffer& commands,
                                         std::span<const uint64_t> scalars) const {
  const QueueCapability& needs = commands.needs();
  if (needs.compute && !takes_.compute) {
    return absl::InvalidArgumentError(
        StrCat(name_, ": a launch was submitted to a queue that takes copies only"));
  }
  if (needs.copy && !takes_.copy) {
    return absl::InvalidArgumentError(
        StrCat(name_, ": a copy was submitted to a queue that takes launches only"));
  }
  if (commands.scalars() == scalars.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(scalars.size(), " scalars for commands of ", commands.scalars()));
}

// What a device loads as a ProgramImage's binary: code for its target, a tensor graph (see
// graph_program.h), which it compiles itself, or nothing: it only copies.
enum class ProgramLevel : uint8_t { kBinary, kTensorGraph, kNothing };

// What a device does in a second at its usual rather than its best, as it declares; 0: unknown.
struct Rates {
  ArithmeticRates flops;  // operations, by their kind
  double bytes = 0;       // that it reads and writes of its memory
  // How many iterations of a launch it takes for that: a launch of fewer leaves the rest idle.
  int64_t iterations = 1;

  // By which the operations of a launch are predicted, which are not counted by kind.
  double launch_flops() const { return flops[Arithmetic::kVectorF32]; }
};

// The way on which the copies of a device reach memory of another, the longest first.
enum class PeerPath : uint8_t {
  kNone,         // none does: it takes one copy to memory of the host and one from there
  kThroughHost,  // they do, and the driver takes the bytes through memory of the host
  kDirect,       // from memory to memory, of which either may be the host's
};

// How a device reaches memory of another one.
struct PeerAccess {
  PeerPath path = PeerPath::kNone;
  // Whether also its programs do, which read, write and atomically update it as the device's own.
  bool atomics = false;

  bool reaches() const { return path != PeerPath::kNone; }
  friend bool operator==(const PeerAccess&, const PeerAccess&) = default;
};

// How a device of another machine or process is reached.
struct DeviceLink {
  int64_t round_trip_ns = 0;    // as measured last; 0: not yet
  double bytes_per_second = 0;  // of the copies so far; 0: none was long enough to tell
};

// What a buffer made from a file may do with it.
enum class OpenMode : uint8_t {
  kRead,
  kWrite,   // read and write, within the file's size
  kCreate,  // read and write; the file is made, and zero
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;  // "CPU:0"
  virtual const Target& target() const = 0;
  virtual int64_t memory_limit() const = 0;  // bytes
  virtual int64_t memory_used() const = 0;
  virtual Rates rates() const { return {}; }
  // What the device holds of the system's memory, whether or not it is in use.
  virtual int64_t memory_footprint() const { return 0; }
  // What it holds beside the memory in use, of the generation at hand; null: nothing.
  virtual std::shared_ptr<IdleMemory> idle_memory() { return nullptr; }
  // What its hardware measures of itself, also while the device is lost; null: nothing.
  virtual std::shared_ptr<Sensors> sensors() { return nullptr; }
  virtual ProgramLevel accepts() const { return ProgramLevel::kBinary; }
  // Whether the host can address its memory: Memory::host() is not null.
  virtual bool host_visible() const = 0;
  // How its commands reach memory of `other`: its own, and all that the host can address; some
  // reach memory of their peers.
  virtual PeerAccess AccessTo(const Device& other) const {
    if (&other == this) return {PeerPath::kDirect, accepts() != ProgramLevel::kNothing};
    return {other.host_visible() ? PeerPath::kDirect : PeerPath::kNone};
  }

  // The device as that tenant uses it, where this one keeps tenants apart on its far side; null:
  // one device is for all. Its name is this device's. It may go at any time; memory and programs of
  // it may stay. Devices for one tenant share what one tenant may see.
  virtual std::shared_ptr<Device> ForTenant(std::string_view) { return nullptr; }
  // None for a device of this machine.
  virtual std::optional<DeviceLink> link() const { return std::nullopt; }

  // `size` bytes, zeroed, aligned to at least 64. RESOURCE_EXHAUSTED over the limit, naming both
  // figures.
  virtual absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) = 0;
  // The same of a kind that the device makes. Pinned memory of the host counts for no limit of the
  // device, and has its contents also when the device is lost. UNIMPLEMENTED for a kind that it
  // does not make.
  virtual absl::StatusOr<std::shared_ptr<Memory>> AllocOf(MemoryKind kind, int64_t size);
  virtual bool Makes(MemoryKind kind) const { return kind == MemoryKind::kDevice; }
  // Pinned memory of the host for bytes on their way to or from the device: at least `size`, with
  // whatever contents, for a short time, because the device has so much and lends it again and
  // again. Null where none is left, for a few bytes, and where a device has none.
  virtual std::shared_ptr<Memory> LendPinned(int64_t) { return nullptr; }
  // What ImportHandle of a device of this driver opens in another process, of exported memory of
  // this device, which has to be kept for as long as others have it open. INVALID_ARGUMENT for
  // memory of another kind or device.
  virtual absl::StatusOr<std::string> ExportHandle(const Memory& memory);
  // Bytes [offset, offset + length) of one of the device's files; to the end of the file where
  // `length` is -1. UNIMPLEMENTED where a device has none.
  virtual absl::StatusOr<std::shared_ptr<Memory>> Open(std::string_view path, int64_t offset,
                                                       int64_t length, OpenMode mode);
  // The first `size` bytes of memory of this device that another process has allocated, for which
  // its driver made `handle`. Closed when the last reference goes; the process keeps the memory for
  // so long. INVALID_ARGUMENT for a handle that the driver does not open and for memory that is
  // smaller. UNIMPLEMENTED where a device opens none.
  virtual absl::StatusOr<std::shared_ptr<Memory>> ImportHandle(std::string_view handle,
                                                               int64_t size);
  // UNIMPLEMENTED for a program that takes tensor maps, where a device has none.
  virtual absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) = 0;
  // INVALID_ARGUMENT for a command that this device cannot encode.
  virtual absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) = 0;
  // Its queues, at least one, the same for as long as it is there. What a queue takes it says
  // itself; its number is its place here.
  virtual std::span<Queue* const> queues() = 0;
  // The first queue that takes this kind of work alone, or else the first that takes it; of two
  // that take copies alone, copies out get the second, so that they and others run at the same
  // time. Where none takes the work, as on a device that runs no programs, the first queue, which
  // refuses it.
  Queue& queue(QueueKind kind);
  Queue& queue() { return queue(QueueKind::kCompute); }

  // OK while the device can be trusted with more work. One that is lost says so with UNAVAILABLE,
  // its name and its generation (IsDeviceLost), and so ends what was lost with it and what is
  // submitted to it.
  virtual absl::Status Health() const = 0;

  // From 1; how often what computes was started: a driver's context, a worker process, a session
  // with another server. Programs and encoded commands go on in the next.
  virtual uint64_t generation() const { return 1; }
  // The oldest generation of which memory has its contents. Memory of an older one is empty, and
  // work with it fails with UNAVAILABLE and its generation (Memory::Health).
  virtual uint64_t memory_generation() const { return generation(); }
  // Opens a lost device again, as the next generation, and waits until it has, also where it would
  // come back by itself. FAILED_PRECONDITION while it is healthy; UNAVAILABLE says why it could not
  // be opened, and then it may be tried again. Takes as long as a driver or a network does.
  virtual absl::Status Recover();
};

inline Queue& Device::queue(QueueKind kind) {
  const std::span<Queue* const> all = queues();
  Queue* any = nullptr;
  Queue* alone = nullptr;
  for (Queue* const queue : all) {
    const QueueCapability& takes = queue->takes();
    if (!takes.Has(kind)) continue;
    if (takes.compute != takes.copy) {
      if (kind != QueueKind::kCopyOut || alone != nullptr) return *queue;
      alone = queue;
    } else if (any == nullptr) {
      any = queue;
    }
  }
  if (alone != nullptr) return *alone;
  return any != nullptr ? *any : *all.front();
}

inline absl::StatusOr<std::shared_ptr<Memory>> Device::Open(std::string_view, int64_t, int64_t,
                                                            OpenMode) {
  return absl::UnimplementedError(name() + " has no files");
}

inline absl::StatusOr<std::shared_ptr<Memory>> Device::AllocOf(MemoryKind kind, int64_t size) {
  if (kind == MemoryKind::kDevice) return Alloc(size);
  return absl::UnimplementedError(StrCat(name(), " makes no memory of kind ", NameOf(kind)));
}

inline absl::StatusOr<std::string> Device::ExportHandle(const Memory& memory) {
  return absl::InvalidArgumentError(
      StrCat(name(), " exports no memory of kind ", NameOf(memory.kind())));
}

inline absl::StatusOr<std::shared_ptr<Memory>> Device::ImportHandle(std::string_view, int64_t) {
  return absl::UnimplementedError(name() + " opens no memory of other processes");
}

// Of a device that is never lost.
inline absl::Status Device::Recover() {
  return absl::FailedPreconditionError(StrCat(name(), " is healthy"));
}

// The one of two devices that encodes and runs a copy between their memories, on its copy queue:
// the one with the shorter way to the other's, and `to` where both are as good, unless `to` is the
// host's. Where neither reaches the other, a copy goes through memory of the host: `from` copies to
// that, and `to` copies from it.
inline Device& CopyDevice(Device& to, Device& from) {
  const PeerPath of_to = to.AccessTo(from).path, of_from = from.AccessTo(to).path;
  const bool into_host = to.host_visible() && !from.host_visible();
  return of_to == PeerPath::kNone || of_to < of_from || into_host ? from : to;
}
// Of a copy from memory of `from` that `by` runs, one of the two ends.
inline QueueKind CopyKind(const Device& by, const Device& to, const Device& from) {
  return &by == &from && &by != &to ? QueueKind::kCopyOut : QueueKind::kCopy;
}
inline bool NeedsHost(const Device& to, const Device& from) {
  return !to.AccessTo(from).reaches() && !from.AccessTo(to).reaches();
}

}  // namespace telegrad
