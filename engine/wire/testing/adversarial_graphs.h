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

}  // namespace telegrad::testing
