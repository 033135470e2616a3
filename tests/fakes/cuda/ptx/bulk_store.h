// Bulk copies from shared to global memory that a warp has started, in the groups of each lane.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/fakes/cuda/ptx/code.h"

namespace fakecuda {

class Workgroup;

struct BulkStore {
  struct Row {
    uint32_t at = 0;  // byte of the box
    uint8_t* to = nullptr;
    uint32_t bytes = 0;
  };

  uint64_t from = 0;  // offset in shared memory
  uint32_t bytes = 0;
  std::vector<Row> rows;
  uint32_t span = 0;  // see TensorMap
  uint32_t read_clock = 0, write_clock = 0;
  int line = 0;
  std::vector<uint8_t> box;  // once it is read
};

class BulkStores {
 public:
  void Clear();
  void Begin(int lane, BulkStore store) { At(lane).open.push_back(std::move(store)); }
  void Commit(int lane);
  // Completes all but the last `pending` groups, or, with `read`, reads what they copy.
  void Wait(Warp& warp, int lane, size_t pending, bool read);
  // At the end of the workgroup. The line of a copy that has not been read, or 0.
  int Finish();

 private:
  struct Group {
    std::vector<BulkStore> stores;
    bool is_read = false;
  };
  struct Lane {
    std::vector<BulkStore> open;
    std::deque<Group> groups;
  };

  Lane& At(int lane) { return lanes_[static_cast<size_t>(lane)]; }

  std::array<Lane, kLanes> lanes_;
};

}  // namespace fakecuda
