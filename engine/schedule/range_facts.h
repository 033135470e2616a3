// Of which ranges the nodes of a kernel are made, and how integers step along them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

inline constexpr size_t kMostFactRanges = 12;

// What is known of a node: the ranges that it depends on, and what it is in them if it is an
// integer and linear.
struct NodeFacts {
  uint32_t ranges = 0;
  bool linear = false;
  std::array<int64_t, kMostFactRanges> stride = {};

  bool has(int r) const { return (ranges >> r & 1) != 0; }
};

class RangeFacts {
 public:
  // Of a kernel as the schedule makes it. nullopt: it has many ranges, or ones whose size is no
  // constant, or waits, keeps private memory or has variables.
  static std::optional<RangeFacts> Of(UOp sink);

  static int64_t Size(UOp range) { return range.src(0).const_word(); }
  int IndexOf(UOp range) const;
  const NodeFacts& operator[](UOp u) const { return nodes_[u.id()]; }

 private:
  void Find(UOp u);
  bool AddsUp(UOp u, NodeFacts* f) const;

  std::vector<UOp> ranges_;
  std::vector<NodeFacts> nodes_;
};

}  // namespace telegrad
