// What the fusion decision weighs: arithmetic, memory traffic and launches, all in simple ALU
// operations of one element.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/types/machine_costs.h"

namespace telegrad {

// Several: kSeveral stands for all of them.
inline constexpr uint32_t kSeveral = 0xffffffff;

// What is known of a node before it is decided, sources first.
struct NodeCost {
  double work = 0;           // to compute one element from what is in memory
  uint32_t contraction = 0;  // computing it computes this sum of products; 0: none
  // The fewest elements of a value on the way from that sum of products, which say all of it.
  double contraction_elements = 0;
  uint32_t level = 0;   // of REDUCEs on the longest way down to inputs
  bool reads = false;   // elements of what is in memory; else it depends on positions alone,
  bool given = false;   // and on single ones of these that are read from memory: the run gives them
  bool varies = false;  // a variable decides how much of it, or what
};

// A sum of products whose operands are used for several results, such as a matrix product or a
// convolution: it wants register tiles.
bool IsContraction(UOp reduce);
// Whether it has rows and columns for a tile of `tile` of each, which a product with a vector has
// not.
bool IsMatrixProduct(UOp reduce, int64_t tile);
// Of floats, with more elements than each operand, as the scores of an attention.
bool Grows(UOp reduce);
// Elements reduced into one.
double FoldedExtent(UOp reduce);
// What a chain of views is one of.
UOp BelowMovement(UOp u);

// The costs of the nodes of `order`, by id, on a machine with `costs`, where the nodes of `stored`
// are in memory once they are computed.
std::vector<NodeCost> EstimateCosts(const Graph& graph, const std::vector<uint32_t>& order,
                                    const std::vector<bool>& stored, const ScheduleCosts& costs);

}  // namespace telegrad
