// Compiled kernels by content, loaded on a device: shared between executables and tenants, bounded,
// and fair between the tenants. A kernel that several executables need at once is compiled once. A
// kernel that is not in the cache is looked up on disk, where there is a store, before it is
// compiled.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/mutex.h"
#include "engine/base/once_cache.h"
#include "engine/execution/kernel_services.h"
#include "engine/execution/lowering_time.h"
#include "engine/ir/graph.h"
#include "engine/lowering/lower.h"

namespace telegrad {

// A loaded kernel and what a launch of it does.
struct Kernel {
  // Of an argument that is a copy of a weight: see Program::Packing.
  struct Packing {
    int32_t copy = 0;
    int32_t source = 0;
    std::shared_ptr<const Kernel> kernel;
  };
  std::string name;
  std::shared_ptr<LoadedProgram> program;
  std::vector<Program::Argument> arguments;
  std::vector<Packing> packings;
  int64_t iterations = 1;
  double flops = 0;
  double bytes = 0;
  std::optional<FrozenGraph> groups;  // see RunGroups
  int64_t code_bytes = 0;
  std::string moves;  // that lowering carried out
  // Where lists that searches found are used: its key there, and the list that it was given, if
  // any.
  std::string found_key = {};
  std::optional<std::string> found = {};
  uint64_t heat = 0;  // its number in KernelHeat; 0: not counted
};

struct KernelStats {
  uint64_t compiled = 0;
  uint64_t hits = 0;
  uint64_t lower_ns = 0;
  uint64_t compile_ns = 0;
  BoundsStats bounds;
  uint64_t lowered_again = 0;   // threads of their first programs might have raced
  uint64_t left_to_driver = 0;  // their driver has to translate PTX instead (docs/cuda.md)
};

// Which arguments of a kernel are what ScheduledKernel says of them.
struct KernelSlots {
  std::span<const int32_t> weights = {};
  std::span<const int32_t> results = {};
};

class KernelCache {
 public:
  explicit KernelCache(int64_t capacity, KernelServices services = {});

  // `kernel` as the schedule makes it, for the budget's share, with its weights and
  // results. `lowered`, which may be null, covers when it was lowered for this call. Thread-safe.
  absl::StatusOr<std::shared_ptr<const Kernel>> Get(const FrozenGraph& kernel, Device& device,
                                                    Budget* budget, const KernelSlots& slots = {},
                                                    LoweringTime* lowered = nullptr);
  KernelStats stats() const;
  // Null where no lists are found.
  FoundMoves* found() const { return services_.found.get(); }
  // Null where device time of kernels is not counted.
  KernelHeat* heat() const { return services_.heat.get(); }

 private:
  // A kernel and its identity.
  struct Named {
    const FrozenGraph& graph;
    const std::string hash;  // of its content, hexadecimal
    const std::string name;
    const KernelSlots slots;
    std::string found_key = {};             // empty where no lists are looked for
    std::optional<std::string> found = {};  // the list
  };
  absl::StatusOr<std::shared_ptr<const Kernel>> Make(const Named& kernel, Device& device,
                                                     Budget* budget, LoweringTime* lowered);
  // Compiles and loads the kernel as PTX.
  absl::StatusOr<std::shared_ptr<const Kernel>> LoadPtx(const Named& kernel, Device& device,
                                                        Budget* budget, LoweringTime* lowered);
  // Loads the kernel from the store; null if it is not there.
  std::shared_ptr<const Kernel> LoadStored(const std::string& store_key, Device& device,
                                           Budget* budget);
  // The list that was found for the kernel, if it is better than the heuristic's.
  std::optional<std::string> FoundFor(const std::string& key) const;
  absl::StatusOr<Program> LowerOne(const Named& kernel, const Target& target, Budget* budget,
                                   LoweringReport* report);
  // The compiled kernel on the device, with the kernels of its packings.
  absl::StatusOr<std::shared_ptr<const Kernel>> Load(CompiledKernel compiled, Device& device,
                                                     Budget* budget);
  absl::StatusOr<CompiledKernel> LowerAndCompile(const Named& kernel, const Target& target,
                                                 Budget* budget, LoweringTime* lowered);
  // The key of the kernel in the store; empty if there is no store or the build has no identity.
  std::string StoreKey(const Named& kernel, const Target& target) const;

  const KernelServices services_;
  mutable Mutex mutex_;
  KernelStats stats_ TG_GUARDED_BY(mutex_);  // without the hits
  OnceCache<Kernel> cache_;
};

}  // namespace telegrad
