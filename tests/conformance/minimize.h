// Makes a failing random graph small.
#pragma once

#include <functional>

#include "engine/ir/graph.h"
#include "tests/conformance/random_graph.h"

namespace telegrad::testing {

// A random graph that owns its graph.
struct Failure {
  FrozenGraph graph;
  RandomGraph random;  // its sink is the graph's root
};

// Repeats until nothing helps: drop a store; put an input of the same type and shape, or one of its
// own sources, in the place of a node; make a size smaller wherever the graph says it. A step
// counts when the graph is still well formed and `fails` still says true.
Failure Minimize(const RandomGraph& random, const std::function<bool(const RandomGraph&)>& fails);

}  // namespace telegrad::testing
