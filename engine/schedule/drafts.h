// Kernels while they are planned: what each writes, its loops, and which has to run before which.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/access.h"
#include "engine/schedule/fusion.h"

namespace telegrad {

// A kernel while it is planned.
struct Draft {
  struct Range {
    double size = 1;
    uint64_t hash = 0;    // equal in two kernels: the same range
    RangeSet around = 0;  // of a reduced one: those that it runs inside of
  };
  std::vector<Range> ranges;  // the loops, outermost first, then the reduced ones
  int loops = 0;
  int folds = 0;                 // reduced ranges, those that reductions share counted for each
  bool closed = false;           // takes no more roots
  std::vector<RangeSet> fronts;  // loops that reductions depend on: each a part of the next
  std::vector<uint32_t> roots;
  std::vector<std::string> reasons;
  int64_t nodes = 0;
  uint32_t contraction = 0;
  uint32_t product = 0;  // the first matrix product that it computes: see IsMatrixProduct
  // By loop: bytes of the operands of its sums of products that do not depend on it.
  std::vector<double> reread;
  struct Operand {
    RangeSet ranges;
    double bytes;
  };
  std::vector<Operand> operands;  // of its sums of products
  std::vector<int> after;         // drafts that run after this one
  int merged_into = -1;

  RangeSet LoopSet() const { return (RangeSet{1} << loops) - 1; }
  // The loops, and the ranges that the reduced ones of `set` run inside of.
  RangeSet Around(RangeSet set) const {
    RangeSet around = LoopSet();
    for (RangeSet left = set & ~LoopSet(); left != 0; left &= left - 1) {
      around |= ranges[static_cast<size_t>(std::countr_zero(left))].around;
    }
    return around;
  }
  // How often a position is computed that depends on `set`: a loop repeats what stands inside of
  // it, whether that depends on it or not.
  double Count(RangeSet set) const;
  double Product(RangeSet set) const {
    double n = 1;
    for (; set != 0; set &= set - 1) n *= ranges[std::countr_zero(set)].size;
    return n;
  }
};

// A node that a kernel computes, or loads.
struct KernelUse {
  int draft = 0;
  Access access;
  bool tiled = false;   // an operand of a sum of products
  int folds = 0;        // reductions that hold it
  bool places = false;  // it says where a GATHER reads, and is no factor of a product itself
};

// The access of a kernel with loops over `shape` to the element that it computes.
Access LoopAccess(ShapeView shape);

class Drafts {
 public:
  static constexpr size_t kMaxRoots = 6;  // of a kernel
  static constexpr size_t kMaxRanges =
      14;  // loops and reductions; lowering splits each into up to four
  static constexpr int64_t kMaxMergedNodes = 400;

  Drafts(const Graph& graph, const FusionOptions& options) : graph_(graph), options_(options) {}

  void clear() { drafts_.clear(); }
  size_t size() const { return drafts_.size(); }
  Draft& operator[](int draft) { return drafts_[draft]; }
  const Draft& operator[](int draft) const { return drafts_[draft]; }

  // A kernel with loops over `shape`.
  int Add(ShapeView shape, uint32_t root, uint32_t contraction);
  // What a draft has been merged into, or itself.
  int Find(int draft) const;
  // `from` runs before `to`.
  void AddEdge(int from, int to);
  // Whether `from` has to run before `to`; true where it would take long to tell.
  bool HasPath(int from, int to) const;
  // Kernels looked at to find out which of two comes first.
  static constexpr size_t kMaxWalk = 1024;

  // Whether the draft takes no more roots.
  bool Alone(const Draft& draft) const;
  // Whether its nest does.
  bool Apart(const Draft& draft) const;
  // The slot that a root writes, if it is a STORE.
  std::optional<int64_t> SlotOf(uint32_t root) const;
  // Makes two drafts one, if both gain: `elements` of a value that both need are walked over by
  // the ranges `shared`.
  void TryMerge(int x, int y, double elements, RangeSet shared);

 private:
  bool WritesSameSlot(const Draft& a, const Draft& b) const;

  const Graph& graph_;
  const FusionOptions& options_;
  std::vector<Draft> drafts_;
  // Of HasPath: what is to be walked from, the walk that has last seen each draft, and its number.
  mutable std::vector<int> stack_;
  mutable std::vector<uint64_t> seen_;
  mutable uint64_t walks_ = 0;
};

}  // namespace telegrad
