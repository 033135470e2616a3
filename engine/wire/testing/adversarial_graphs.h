// Graphs that break no rule and are made to cost much more than they say: for tests of budgets
// along the whole way of a graph.
#pragma once

#include <string>
#include <vector>

#include "telegrad/v1/graph.pb.h"

namespace telegrad::testing {

struct AdversarialGraph {
  std::string name;
  v1::Graph graph;
};

std::vector<AdversarialGraph> AdversarialGraphs();

// `stores` to one slot, each an element of it, each after the one before.
v1::Graph ManyStores(int stores);
// Stores to one slot that name no AFTER: their order is hidden in chains of `length` nodes that the
// verifier has to search.
v1::Graph HiddenOrder(int stores, int length);

}  // namespace telegrad::testing
