// Memory of one kind, allocated from regions of the kernel driver: small blocks share a region,
// a large one has its own, which is returned to the driver when the block is freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/hcq/range_heap.h"
#include "devices/nv/region.h"
#include "engine/base/mutex.h"

namespace telegrad::nv {

struct Block {
  uint64_t address = 0;       // the GPU's; 0: none
  std::byte* host = nullptr;  // null: the host cannot address it
  size_t bytes = 0;
};

// A region with the calls that give it back.
struct OwnedRegion {
  explicit OwnedRegion(const RmClient& parent) : rm(parent, nullptr) {}
  RmClient rm;
  Region region;
};

// Thread-safe.
class Heap {
 public:
  // A new region of at least `bytes`.
  using Grow = std::function<absl::StatusOr<std::unique_ptr<OwnedRegion>>(size_t bytes)>;
  // The address of a region that is given back.
  using Dropped = std::function<void(const Region& region)>;

  // Regions of `chunk` bytes are shared by blocks of at most half of that.
  Heap(size_t chunk, Grow grow, Dropped dropped)
      : chunk_(chunk), grow_(std::move(grow)), dropped_(std::move(dropped)) {}
  ~Heap() { Clear(); }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  absl::StatusOr<Block> Take(size_t bytes, size_t alignment);
  void Give(const Block& block);
  // Gives all regions back, whatever is in use; what could not be, with the reason.
  std::vector<std::string> Clear();

  // The GPU's address of `bytes` that the host has at `host`; 0: they are not of this heap.
  uint64_t AddressOf(const void* host, size_t bytes) const;

 private:
  struct Part {
    std::unique_ptr<OwnedRegion> owned;
    hcq::RangeHeap free;
    bool shared = false;
  };

  Block At(const Part& part, uint64_t address, size_t bytes) const;
  std::vector<std::string> Drop(std::map<uint64_t, Part>::iterator part) TG_REQUIRES(mutex_);

  const size_t chunk_;
  const Grow grow_;
  const Dropped dropped_;
  mutable Mutex mutex_;
  std::map<uint64_t, Part> parts_ TG_GUARDED_BY(mutex_);  // by the GPU's address
};

}  // namespace telegrad::nv
