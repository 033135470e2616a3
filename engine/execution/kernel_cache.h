// Compiled kernels by content, loaded on a device: shared between executables, bounded, evicted
// least recently used. A kernel that several executables need at once is compiled once. One that is
// not here is looked for on disk, where there is a store, before it is compiled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/execution/kernel_services.h"
#include "engine/ir/graph.h"
#include "engine/lowering/lower.h"

namespace telegrad {

// A loaded kernel and what a launch of it does.
struct Kernel {
  std::string name;
  std::shared_ptr<LoadedProgram> program;
  std::vector<Program::Argument> arguments;
  int64_t iterations = 1;
  double flops = 0;
  double bytes = 0;
  int64_t code_bytes = 0;
};

struct KernelStats {
  uint64_t compiled = 0;
  uint64_t hits = 0;
  uint64_t lower_ns = 0;
  uint64_t compile_ns = 0;
  BoundsStats bounds;
};

class KernelCache {
 public:
  explicit KernelCache(int64_t capacity, KernelServices services = {});

  // `kernel` as the schedule makes it. Thread-safe.
  absl::StatusOr<std::shared_ptr<const Kernel>> Get(const FrozenGraph& kernel, Device& device,
                                                    Budget* budget);
  KernelStats stats() const;

 private:
  struct Entry {
    std::shared_ptr<const Kernel> kernel;  // null while it is being compiled
    std::list<std::string>::iterator age;
  };
  // A kernel and its identity.
  struct Named {
    const FrozenGraph& graph;
    const std::string hash;  // of its content, hexadecimal
    const std::string name;
  };
  absl::StatusOr<std::shared_ptr<const Kernel>> Make(const Named& kernel, Device& device,
                                                     Budget* budget);
  // From the store; null if it is not there.
  std::shared_ptr<const Kernel> LoadStored(const std::string& store_key, Device& device);
  absl::StatusOr<CompiledKernel> LowerAndCompile(const Named& kernel, const Target& target,
                                                 Budget* budget);
  // Where the store has the kernel; empty if there is no store, or no telling which build this is.
  std::string StoreKey(const Named& kernel, const Target& target) const;
  void Evict();

  const int64_t capacity_;
  const KernelServices services_;
  mutable std::mutex mutex_;
  std::condition_variable made_;
  absl::flat_hash_map<std::string, Entry> entries_;
  std::list<std::string> by_age_;  // least recently used first
  KernelStats stats_;
};

}  // namespace telegrad
