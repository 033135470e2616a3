#include "engine/lowering/workgroup_rows.h"

namespace telegrad {

void WorkgroupRows::MakeThreads(const TileLayout& layout, int64_t warps) {
  layout_ = layout;
  threads_.push_back(Fresh(AxisType::kLocal, warps));
  lane_ = g_.Index(0);
  for (size_t i = layout.threads.size(); i-- > 0;) {
    const TileDigit& digit = layout.threads[i];
    threads_.push_back(Fresh(AxisType::kLocal, digit.size));
    lane_ = Add(Mul(lane_, digit.size), threads_.back());
    (digit.row ? row_lanes_ : column_lanes_).push_back(threads_.back());
  }
}

TileWalk WorkgroupRows::Over(int64_t columns, AxisType of_rows, AxisType of_columns,
                             std::optional<AxisType> lowest) {
  TileWalk walk;
  walk.row = Mul(threads_[0], layout_.tile_rows);
  walk.row_at = walk.column = walk.at = g_.Index(0);
  if (columns > layout_.columns) {
    const UOp tile = Fresh(of_columns, columns / layout_.columns);
    walk.columns.push_back(tile);
    walk.column = Mul(tile, layout_.columns);
    walk.at = Mul(tile, layout_.size());
  }
  for (size_t i = 0; i < layout_.threads.size(); ++i) {
    const TileDigit& digit = layout_.threads[i];
    UOp& along = digit.row ? walk.row : walk.column;
    along = Add(along, Mul(threads_[threads_.size() - 1 - i], digit.stride));
  }
  int64_t below = 1, rows_below = 1;
  for (const TileDigit& digit : layout_.elements) {
    AxisType type = digit.row ? of_rows : of_columns;
    if (!digit.row && digit.stride == 1 && below == 1 && lowest) type = *lowest;
    const UOp range = Fresh(type, digit.size);
    UOp& along = digit.row ? walk.row : walk.column;
    along = Add(along, Mul(range, digit.stride));
    walk.at = Add(walk.at, Mul(range, below));
    if (digit.row) {
      walk.row_at = Add(walk.row_at, Mul(range, rows_below));
      rows_below *= digit.size;
    }
    (digit.row ? walk.rows : walk.columns).push_back(range);
    below *= digit.size;
  }
  return walk;
}

}  // namespace telegrad
