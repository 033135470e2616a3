// The threads of a workgroup as they share rows of a softmax: which elements of a tile each has.
#pragma once

#include <optional>
#include <vector>

#include "engine/lowering/online_nodes.h"
#include "engine/lowering/tile_layout.h"

namespace telegrad {

// Some of a thread's elements of a tile of the workgroup's rows.
struct TileWalk {
  UOp row, column;  // in the workgroup's tile
  UOp at, row_at;   // the numbers of the element and of its row, among the thread's
  std::vector<UOp> rows = {}, columns = {};  // ranges
};

// Each warp has layout_.tile_rows of the rows, and of these each lane what the layout gives it.
class WorkgroupRows : public OnlineNodes {
 protected:
  using OnlineNodes::OnlineNodes;

  // Digits of a lane's number are ranges of their own, so that a sum over some is one over lanes.
  void MakeThreads(const TileLayout& layout, int64_t warps);

  // Of a tile of so many columns, a multiple of the layout's. `lowest`: of the columns that are
  // neighbours.
  TileWalk Over(int64_t columns, AxisType of_rows, AxisType of_columns,
                std::optional<AxisType> lowest = {});

  TileLayout layout_;
  std::vector<UOp> threads_;  // warps, then the digits of a lane, the highest first
  std::vector<UOp> row_lanes_, column_lanes_;  // of them
  UOp lane_;
};

}  // namespace telegrad
