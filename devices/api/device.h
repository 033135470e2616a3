// The device contract: memory, programs and queues. Everything that runs is asynchronous: a
// submission names the timeline points it waits for and returns the point it will signal. A wait
// for a failed point fails the submission with the same Status, and so everything that depends on
// it, and nothing else.
//
// Thread-safe. Drivers include this folder, base and types; never the IR.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/timeline.h"
#include "engine/types/target.h"

namespace telegrad {

// A raw allocation. It returns to its device when the last reference goes; a submission holds a
// reference to each allocation that it uses until it has ended, so dropping a reference never
// blocks and never races.
class Memory {
 public:
  virtual ~Memory() = default;
  int64_t size() const { return size_; }
  // The bytes, where the host can address them; else null.
  void* host() const { return host_; }

 protected:
  Memory(void* host, int64_t size) : host_(host), size_(size) {}

 private:
  void* host_;
  int64_t size_;
};

// A flat part of an allocation, in bytes.
struct BufferView {
  std::shared_ptr<Memory> memory;
  int64_t offset = 0;
  int64_t length = 0;
};

// What a compiler made for a target: the CPU's is a relocatable ELF object.
struct ProgramImage {
  std::string name;  // the entry point
  std::string binary;
};

// A loaded program. The CPU's entry point is
//   void name(void* const* buffers, int64_t begin, int64_t end)
// and runs the iterations [begin, end) of its outermost parallel range.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
};

// One launch of a command buffer. Each argument is a part of one of the buffers bound at
// submission.
struct Launch {
  struct Argument {
    int32_t binding = 0;  // which of Submit's bindings
    int64_t offset = 0;   // bytes into it
  };
  std::shared_ptr<LoadedProgram> program;
  std::vector<Argument> arguments;
  int64_t begin = 0;       // the first iteration of the parallel range
  int64_t iterations = 1;  // how many from there; split over the device's workers
  double flops = 0;        // predicted, with bytes: decides how many workers are worth waking
  double bytes = 0;
};

// Copies within the bound buffers; source and destination may not overlap.
struct CopyBytes {
  Launch::Argument to, from;
  int64_t length = 0;
};

struct Command {
  enum class Kind { kLaunch, kCopy } kind = Kind::kLaunch;
  Launch launch;
  CopyBytes copy;
};

// Commands encoded once for a device, replayed with different bindings. Immutable.
class CommandBuffer {
 public:
  virtual ~CommandBuffer() = default;
};

class Queue {
 public:
  virtual ~Queue() = default;

  // Enqueues the commands, in order, after everything submitted before and after `waits`. Returns
  // at once with the point that is reached when they have ended. RESOURCE_EXHAUSTED when the queue
  // is full.
  virtual absl::StatusOr<TimelinePoint> Submit(std::shared_ptr<const CommandBuffer> commands,
                                               std::vector<BufferView> bindings,
                                               std::span<const TimelinePoint> waits) = 0;

  // The point of the last submission: reached when the queue is idle.
  virtual TimelinePoint last() const = 0;
};

// What a device can do in a second at its usual rather than its best, as it declares it; 0: unknown.
struct Rates {
  double flops = 0;
  double bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;  // "CPU:0"
  virtual const Target& target() const = 0;
  virtual int64_t memory_limit() const = 0;  // bytes
  virtual int64_t memory_used() const = 0;
  virtual Rates rates() const { return {}; }

  // `size` bytes, zeroed, aligned to at least 64. RESOURCE_EXHAUSTED over the limit, naming both
  // figures.
  virtual absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) = 0;
  virtual absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) = 0;
  // INVALID_ARGUMENT for a command that this device cannot encode.
  virtual absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) = 0;
  virtual Queue& queue() = 0;

  // OK while the device can be trusted with more work.
  virtual absl::Status Health() const = 0;
};

}  // namespace telegrad
