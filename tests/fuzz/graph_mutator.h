// Mutation of tensor graphs as lists of nodes, for libFuzzer's custom mutators. An edit may leave
// the list inconsistent; rebuilding it node by node makes it fit again (views, casts, other
// arguments, new inputs), so that most mutants pass the verifier and reach the floors behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad::fuzz {

struct Node {
  Op op;
  DType dtype;
  std::vector<uint32_t> src;  // earlier nodes of the list
  std::vector<int64_t> arg;
};

using NodeList = std::vector<Node>;

// What `root` depends on, itself last.
NodeList ToList(UOp root);

// A random change of `list`, or a new graph if it is empty. The sink of the result, in `graph`;
// usually, not always, one that the verifier accepts. Invalid if nothing came of it.
UOp Mutate(const NodeList& list, uint64_t seed, Graph* graph);
// Both graphs in one, some values of the second taken from the first.
UOp Splice(const NodeList& a, const NodeList& b, uint64_t seed, Graph* graph);

}  // namespace telegrad::fuzz
