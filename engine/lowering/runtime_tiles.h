// Tiles of ranges that end at a number of the run: where whole tiles need no gates.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/lowering/activity.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/runtime_condition.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// A range over tiles, of which the last one has gates.
struct RunTiles {
  UOp range;
  UOp part = {};         // its iterations in a tile that are no lanes; invalid: there are none
  UOp whole = {};        // tiles without gates
  UOp tail = {};         // iterations of the tail
  int64_t together = 1;  // tiles in an iteration of the loop that threads share
  std::vector<UOp> closers = {};
  std::vector<UOp> conditions = {};  // that hold in whole tiles
};

// Whether the iterations of a range become copies of the code, and are no lanes.
bool IsReplica(UOp range);
// Whether a STORE leaves what is in memory where a condition does not hold.
bool LeavesOld(UOp store);
// The STORE of a nest; else the node itself.
UOp StoreOf(UOp nest);

class TileFinder {
 public:
  TileFinder(Rewriter& b, UOp sink, const Dependence& d, const Target& target);

  // The tiles of a range, where it pays to give the whole ones a loop without gates and it is known
  // how many there are; else nullopt.
  std::optional<RunTiles> Find(UOp range) const;

  // What it has found of the kernel: its nodes, and how to read conditions.
  const std::vector<uint32_t>& order() const { return order_; }
  const RunConditions& conditions() const { return conditions_; }

 private:
  bool FindClosers(RunTiles* tiles) const;
  bool NumbersMovedTiles(UOp range) const;
  bool ReadsWhatItWrites(const RunTiles& tiles) const;
  bool MayCopy(UOp closer, const RunTiles& tiles) const;
  std::vector<UOp> NeededByAll(const RunTiles& tiles) const;
  bool Bound(RunTiles* tiles) const;
  bool TakesPart(const RunCondition& form, RunTiles* tiles) const;
  UOp Vectors(const RunCondition& form, const RunTiles& tiles) const;
  bool Pays(const RunTiles& tiles) const;

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const std::vector<uint32_t> order_;
  const Dependence& d_;
  const Activity activity_;
  const RunConditions conditions_;
  const bool keeps_order_;
  const int64_t threads_;
};

}  // namespace telegrad
