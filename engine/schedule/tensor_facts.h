// What is known of a tensor graph's nodes without looking at places.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

class TensorFacts {
 public:
  explicit TensorFacts(const Graph& graph) : graph_(graph) {}

  // Of all nodes that have been made by now.
  void Update();

  // No memory is read for it.
  bool pure(uint32_t node) const { return (facts_[node].bits & kPure) != 0; }
  // Elementwise, views included, it is computed from a condition on places.
  bool masked(uint32_t node) const { return (facts_[node].bits & kMask) != 0; }
  // It differs from place to place by itself, or it is pure.
  bool by_place(uint32_t node) const { return facts_[node].bits != 0; }
  // Along the axis its elements may differ; along others they are repeated.
  bool varies(uint32_t node, size_t axis) const { return ((facts_[node].varies >> axis) & 1) != 0; }

 private:
  enum Bit : uint8_t { kPure = 1, kPlace = 2, kMask = 4 };
  struct Facts {
    uint8_t bits = 0;
    uint32_t varies = 0;  // by axis
  };

  uint8_t BitsOf(UOp u) const;
  uint32_t VariesOf(UOp u) const;
  uint32_t ThroughReshape(UOp u) const;

  const Graph& graph_;
  std::vector<Facts> facts_;  // by node
};

}  // namespace telegrad
