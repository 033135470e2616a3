// An executable is the compiled form of a tensor graph for one device: its programs loaded, its
// temporaries planned, its launches encoded. It is immutable and shared by all who send the same
// graph; a run binds buffers to slots and submits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/execution/kernel_services.h"
#include "engine/ir/graph.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/types/var_value.h"

namespace telegrad {

// What a run binds to a PARAM slot.
struct SlotUse {
  bool used = false;
  bool read = false;
  bool written = false;
  DType dtype = DType::kVoid;
  Shape shape;
  int64_t bytes = 0;
};

class Executable {
 public:
  virtual ~Executable() = default;

  virtual std::span<const SlotUse> slots() const = 0;
  virtual int num_launches() const = 0;
  virtual int64_t temporary_bytes() const = 0;

  // Enqueues a run with bindings[i] as slot i and returns the point at which it has ended.
  // INVALID_ARGUMENT names the slot that is missing, too short or misaligned, or the two that
  // overlap where one is written. Thread-safe.
  virtual absl::StatusOr<TimelinePoint> Submit(std::span<const BufferView> bindings,
                                               std::span<const TimelinePoint> waits) const = 0;
};

// Executables by content, bounded, evicted least recently used. Thread-safe; a graph that several
// ask for at once is compiled once. A graph with variables has one executable for each set of
// their values: it is specialized to them, so that kernels are as good as with fixed sizes.
class ExecutableCache {
 public:
  struct Limits {
    int64_t executables = 1024;
    int64_t kernels = 8192;  // compiled programs, shared between executables
  };
  struct Stats {  // totals since construction
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t kernels_compiled = 0;
    uint64_t kernel_cache_hits = 0;
    uint64_t schedule_ns = 0;
    uint64_t lower_ns = 0;
    uint64_t compile_ns = 0;
    uint64_t launches = 0;  // submitted
    BoundsStats bounds;     // of the kernels compiled
  };
  struct Result {
    std::shared_ptr<const Executable> executable;
    bool cached = false;      // nothing was scheduled or compiled for this call
    uint64_t compile_ns = 0;  // schedule, lower and compile; 0 when cached
  };

  explicit ExecutableCache(const Limits& limits, KernelServices services = {});
  ~ExecutableCache();

  // `hash` is the content hash of `graph`, a verified tensor graph (its SINK is the root).
  // INVALID_ARGUMENT: a variable has no value, or one that it does not allow.
  absl::StatusOr<Result> Get(const Digest& hash, const FrozenGraph& graph, Device& device,
                             Budget* budget, std::span<const VarValue> variables = {});
  // The executable if it is there, without ever waiting or compiling; else null.
  std::shared_ptr<const Executable> Find(const Digest& hash, const Device& device,
                                         std::span<const VarValue> variables = {});
  Stats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace telegrad
