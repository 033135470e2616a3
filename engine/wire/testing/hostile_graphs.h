// Graphs as a broken or hostile client would send them, each with the code that admission must give
// it. For tests of the codec and of every service that takes graphs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/ir/op.h"
#include "engine/types/dtype.h"
#include "telegrad/v1/graph.pb.h"

namespace telegrad::testing {

// Builds protos node by node without checking anything.
class RawGraph {
 public:
  RawGraph();

  // Adds a node and returns its index; the root is always the last node.
  uint32_t Add(Op op, DType dtype, std::initializer_list<uint32_t> src);
  uint32_t Param(uint32_t slot, DType dtype, std::initializer_list<uint64_t> dims);
  uint32_t Words(Op op, uint32_t src, std::initializer_list<int64_t> words);
  // STORE(param of `slot`, value) and SINK.
  void Finish(uint32_t slot, DType dtype, std::initializer_list<uint64_t> dims, uint32_t value);

  v1::Node* node(uint32_t index) { return proto_.mutable_nodes(static_cast<int>(index)); }
  v1::Graph& proto() { return proto_; }

 private:
  v1::Graph proto_;
};

struct HostileGraph {
  std::string name;
  v1::Graph graph;
  absl::StatusCode code;
  std::string message;  // a part of the error's message
};

// Small and cheap to send.
std::vector<HostileGraph> HostileGraphs();

// A valid graph of about `nodes` nodes, each the source of the next.
v1::Graph DeepChain(int nodes);

}  // namespace telegrad::testing
