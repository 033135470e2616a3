// What a comparison with numbers of the run says about the iterations of one RANGE.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/lowering/activity.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// factor * main + rest + constant + (the free terms) < 0, over the integers.
struct RunCondition {
  UOp main;  // depends on the range: it, a quotient of it, or the beginning of a tile (EndBelow)
  int64_t factor = 0;
  UOp rest;             // an i64, computed from numbers that the run gives and from `around`
  bool around = false;  // whether it depends on loops around the range
  int64_t constant = 0;
  std::vector<std::pair<UOp, int64_t>> free;  // other terms, with their factors

  // The constant with the free terms as small as they can be, and as great.
  int64_t Least() const;
  int64_t Most() const;
};

class RunConditions {
 public:
  RunConditions(Rewriter& b, const Dependence& d, const Activity& activity)
      : b_(b), g_(*b.graph()), d_(d), activity_(activity) {}

  // Of a CMPLT; nullopt where it says nothing that depends on the range and on a number of the run.
  // `around`: loops that the range is inside of.
  std::optional<RunCondition> Read(UOp condition, UOp range, RangeSet around) const;

  // How many iterations of the range there are in which it holds, with `constant` in place of the
  // constant and the free terms. It may be negative or more than the range has. Invalid where that
  // is not known.
  UOp End(const RunCondition& condition, UOp range, int64_t constant) const;

  // -(rest + constant): what factor * main is below.
  UOp Limit(const RunCondition& condition, int64_t constant) const;

  UOp Times(UOp u, int64_t by) const;
  UOp Least(UOp x, UOp y) const;
  UOp RoundUp(UOp x, int64_t by) const;  // ceil(x / by)

 private:
  UOp EndBelow(UOp node, int64_t factor, UOp range, UOp limit) const;
  bool IsLoopAround(UOp u, RangeSet around) const;

  Rewriter& b_;
  Graph& g_;
  const Dependence& d_;
  const Activity& activity_;
};

// The beginning of a tile of which the last one begins earlier than others would, so that it is
// whole: max(range * step, last), where both of these are negative.
struct TileBegin {
  int64_t step = 0, last = 0;
};
std::optional<TileBegin> TileBeginOf(UOp u, UOp range);

}  // namespace telegrad
