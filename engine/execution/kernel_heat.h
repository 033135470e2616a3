// Which kernels take the most device time: what a search is worth while for. A run's time is
// divided among its kernels as it was predicted for them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "devices/api/device.h"
#include "engine/base/mutex.h"
#include "engine/base/share.h"
#include "engine/execution/executable.h"
#include "engine/ir/graph.h"

namespace telegrad {

// A kernel on a device.
struct HotKernel {
  std::string key;  // of FoundMoves
  std::string name;
  FrozenGraph graph;
  std::vector<int32_t> weights;
  std::string device;                            // its name
  int64_t ns = 0;                                // device time since it was last taken
  std::shared_ptr<const Share> share = nullptr;  // of the tenant that took most of it
  std::vector<int32_t> results = {};
};

// Thread-safe. Knows a bounded number of kernels, of a bounded size: of more, one gives way of the
// tenant that has had the most of them compiled for its weight, with the one that comes. Of its own
// it is one that was taken, or else the one that has taken the least time.
class KernelHeat {
 public:
  explicit KernelHeat(size_t kernels = 512) : most_(kernels) {}

  // Its number, for KernelInfo::heat; the same for the same key. 0 for one that is too large to be
  // tiled, so that there is nothing to be searched for. `share`, which may be null: of the tenant
  // for which it is compiled.
  uint64_t Know(HotKernel kernel, std::shared_ptr<const Share> share = nullptr);
  // A run of these kernels, for that tenant, has taken so much device time.
  void Spent(std::span<const KernelInfo> kernels, int64_t ns,
             const std::shared_ptr<const Share>& share);
  // Somebody asks, at the expense of that tenant, that these be taken whatever time they have
  // taken.
  void Want(std::span<const KernelInfo> kernels, const std::shared_ptr<const Share>& share);
  // One that was asked for; else the one that has taken the most, at least `least_ns`. None that
  // was taken before.
  std::optional<HotKernel> TakeHottest(int64_t least_ns);
  // One that was taken may be taken again, once it has taken `least_ns` anew.
  void PutBack(const std::string& key);

 private:
  struct Known {
    HotKernel kernel;
    std::shared_ptr<const Share> holder = nullptr;
    bool taken = false;
    std::map<std::shared_ptr<const Share>, int64_t> by_share = {};
    std::shared_ptr<const Share> wanted_by = nullptr;  // who has asked first
  };

  void DropOneLocked(const Share* comer) TG_REQUIRES(mutex_);  // that one's kernel is to come

  const size_t most_;
  Mutex mutex_;
  std::map<uint64_t, Known> kernels_ TG_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> numbers_ TG_GUARDED_BY(mutex_);  // by key
  uint64_t next_ TG_GUARDED_BY(mutex_) = 1;
};

}  // namespace telegrad
