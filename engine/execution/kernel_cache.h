// Compiled kernels by content, loaded on a device: shared between executables and tenants, bounded.
// Each kernel is held by one tenant, at first the one for which it was compiled. To make room, the
// least recently used kernel of the tenant that holds the most for its weight is evicted, so a
// tenant within its fair share loses nothing to others. If another tenant has used that kernel
// since and holds less, the kernel moves to that tenant instead. A kernel that several executables
// need at once is compiled once. A kernel that is not in the cache is looked up on disk, where
// there is a store, before it is compiled.
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
#include "engine/base/share.h"
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

  // `kernel` as the schedule makes it, for the budget's share. Thread-safe.
  absl::StatusOr<std::shared_ptr<const Kernel>> Get(const FrozenGraph& kernel, Device& device,
                                                    Budget* budget);
  KernelStats stats() const;

 private:
  // A tenant that holds kernels.
  struct Holder {
    std::shared_ptr<const Share> share;
    std::list<std::string> by_age;  // least recently used first
    // The kernels that it holds, for each unit of its weight.
    double load(size_t more = 0) const {
      const int64_t weight = share == nullptr ? 1 : share->weight();
      return static_cast<double>(by_age.size() + more) / static_cast<double>(weight);
    }
  };
  struct Entry {
    std::shared_ptr<const Kernel> kernel;  // null while it is being compiled
    const Share* holder;
    std::list<std::string>::iterator age;
    std::shared_ptr<const Share> other;  // the tenant that used it last, other than its holder
  };
  // A kernel and its identity.
  struct Named {
    const FrozenGraph& graph;
    const std::string hash;  // of its content, hexadecimal
    const std::string name;
  };
  absl::StatusOr<std::shared_ptr<const Kernel>> Make(const Named& kernel, Device& device,
                                                     Budget* budget);
  // Loads the kernel from the store; null if it is not there.
  std::shared_ptr<const Kernel> LoadStored(const std::string& store_key, Device& device);
  absl::StatusOr<CompiledKernel> LowerAndCompile(const Named& kernel, const Target& target,
                                                 Budget* budget);
  // The key of the kernel in the store; empty if there is no store or the build has no identity.
  std::string StoreKey(const Named& kernel, const Target& target) const;
  void Use(Entry& entry, const std::shared_ptr<const Share>& share);
  Holder& HolderOf(const std::shared_ptr<const Share>& share);
  void Leave(const Entry& entry);
  bool DropFrom(const Holder& holder);
  void Evict();

  const int64_t capacity_;
  const KernelServices services_;
  mutable std::mutex mutex_;
  std::condition_variable made_;
  absl::flat_hash_map<std::string, Entry> entries_;
  absl::flat_hash_map<const Share*, Holder> holders_;  // of one kernel or more
  KernelStats stats_;
};

}  // namespace telegrad
