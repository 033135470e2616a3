// One function for each kind of trouble. Most take a small good graph, out = a + b, and break one
// thing.
#include "engine/wire/testing/hostile_graphs.h"

#include <functional>
#include <utility>

#include "engine/types/limits.h"
#include "engine/wire/graph_codec.h"

namespace telegrad::testing {
namespace {

constexpr DType kFloat = DType::kFloat32;
constexpr uint32_t kAddIndex = 2, kOutIndex = 3, kStoreIndex = 4, kSinkIndex = 5;

RawGraph Good() {
  RawGraph g;
  const uint32_t a = g.Param(0, kFloat, {4, 8});
  const uint32_t b = g.Param(1, kFloat, {4, 8});
  g.Finish(2, kFloat, {4, 8}, g.Add(Op::kAdd, DType::kVoid, {a, b}));
  return g;
}

class List {
 public:
  void Invalid(std::string name, std::string message, const std::function<void(RawGraph&)>& edit) {
    Add(std::move(name), absl::StatusCode::kInvalidArgument, std::move(message), edit);
  }
  void Exhausted(std::string name, std::string message,
                 const std::function<void(RawGraph&)>& edit) {
    Add(std::move(name), absl::StatusCode::kResourceExhausted, std::move(message), edit);
  }
  std::vector<HostileGraph> Take() { return std::move(graphs_); }

 private:
  void Add(std::string name, absl::StatusCode code, std::string message,
           const std::function<void(RawGraph&)>& edit) {
    RawGraph g = Good();
    edit(g);
    graphs_.push_back({std::move(name), g.proto(), code, std::move(message)});
  }
  std::vector<HostileGraph> graphs_;
};

void Structure(List& list) {
  list.Invalid("empty", "form", [](RawGraph& g) { g.proto().Clear(); });
  list.Invalid("no nodes", "root", [](RawGraph& g) { g.proto().clear_nodes(); });
  list.Invalid("later form", "form 3", [](RawGraph& g) { g.proto().set_form(kGraphForm + 1); });
  list.Invalid("root outside", "root is node 6", [](RawGraph& g) { g.proto().set_root(6); });
  list.Invalid("root is no sink", "node 2 (add)",
               [](RawGraph& g) { g.proto().set_root(kAddIndex); });
  list.Invalid("truncated", "root", [](RawGraph& g) { g.proto().mutable_nodes()->RemoveLast(); });
  list.Invalid("forward reference", "node 2 (add): source 1 is node 3",
               [](RawGraph& g) { g.node(kAddIndex)->set_src(1, kOutIndex); });
  list.Invalid("self reference", "node 2 (add): source 0 is node 2",
               [](RawGraph& g) { g.node(kAddIndex)->set_src(0, kAddIndex); });
  list.Invalid("source outside", "node 2 (add)",
               [](RawGraph& g) { g.node(kAddIndex)->set_src(0, 0xffffffff); });
  list.Exhausted("too many nodes", "1000000", [](RawGraph& g) {
    for (int64_t i = 0; i < kMaxNodes; ++i) g.proto().add_nodes();
  });
  list.Exhausted("too many sources", "node 6 (sink)", [](RawGraph& g) {
    const uint32_t sink = g.Add(Op::kSink, DType::kVoid, {});
    for (int i = 0; i <= kMaxSources; ++i) g.node(sink)->add_src(kStoreIndex);
  });
}

void Numbers(List& list) {
  list.Invalid("unknown op", "node 2: unknown op 9999",
               [](RawGraph& g) { g.node(kAddIndex)->set_op(9999); });
  list.Invalid("op zero", "unknown op 0", [](RawGraph& g) { g.node(kAddIndex)->set_op(0); });
  list.Invalid("op beyond int", "unknown op",
               [](RawGraph& g) { g.node(kAddIndex)->set_op(0xffffffff); });
  list.Invalid("op of a kernel", "node 2 (index): is not an op of the tensor level",
               [](RawGraph& g) { g.node(kAddIndex)->set_op(Info(Op::kIndex).wire); });
  list.Invalid("op of a program", "tensor level", [](RawGraph& g) {
    g.node(kAddIndex)->set_op(Info(Op::kBuffer).wire);
    g.node(kAddIndex)->clear_src();
  });
  list.Invalid("unknown dtype", "node 0 (param): unknown dtype 77",
               [](RawGraph& g) { g.node(0)->set_dtype(77); });
  list.Invalid("no dtype", "unknown dtype 0", [](RawGraph& g) { g.node(0)->set_dtype(0); });
  list.Invalid("dtype where it is derived", "expected 0",
               [](RawGraph& g) { g.node(kAddIndex)->set_dtype(Info(kFloat).wire); });
}

void Arguments(List& list) {
  list.Invalid("argument where none belongs", "node 2 (add): has 1 argument words, expected 0",
               [](RawGraph& g) { g.node(kAddIndex)->add_arg(0); });
  list.Invalid("no argument", "node 0 (param): has 0 argument words",
               [](RawGraph& g) { g.node(0)->clear_arg(); });
  list.Invalid("slot outside", "slot", [](RawGraph& g) { g.node(0)->set_arg(0, 0xffffffff); });
  list.Invalid("device outside", "device", [](RawGraph& g) { g.node(0)->set_arg(1, 256); });
  list.Invalid("words for a real", "expected a real value",
               [](RawGraph& g) { g.node(g.Add(Op::kConst, kFloat, {}))->add_arg(0); });
  list.Invalid("real value of an integer", "expected argument words",
               [](RawGraph& g) { g.node(g.Add(Op::kConst, DType::kInt32, {}))->set_real(1); });
  list.Invalid("integer outside of its type", "not representable",
               [](RawGraph& g) { g.node(g.Add(Op::kConst, DType::kInt8, {}))->add_arg(128); });
  list.Invalid("real outside of its type", "not representable",
               [](RawGraph& g) { g.node(g.Add(Op::kConst, kFloat, {}))->set_real(0.1); });
  list.Invalid("bool of two", "not representable",
               [](RawGraph& g) { g.node(g.Add(Op::kConst, DType::kBool, {}))->add_arg(2); });
  list.Invalid("unknown reduction", "kind",
               [](RawGraph& g) { g.node(g.Add(Op::kReduce, DType::kVoid, {0}))->add_arg(3); });
  list.Invalid("reduced axis outside", "axis 4294967295", [](RawGraph& g) {
    v1::Node* n = g.node(g.Add(Op::kReduce, DType::kVoid, {0}));
    n->add_arg(0);
    n->add_arg(0xffffffff);
  });
  list.Invalid("permutation that repeats", "twice",
               [](RawGraph& g) { g.Words(Op::kPermute, 0, {0, 0}); });
  list.Invalid("odd pairs", "argument words",
               [](RawGraph& g) { g.Words(Op::kShrink, 0, {0, 1, 0}); });
}

void Sizes(List& list) {
  list.Invalid("wrong arity", "node 2 (add): has 1 sources",
               [](RawGraph& g) { g.node(kAddIndex)->mutable_src()->RemoveLast(); });
  list.Invalid("mismatched types", "node 2 (add): source 1 has element type i32",
               [](RawGraph& g) { g.node(1)->set_dtype(Info(DType::kInt32).wire); });
  list.Invalid("mismatched shapes", "node 2 (add): source 1 has shape [4, 9]",
               [](RawGraph& g) { g.node(1)->set_arg(3, 9); });
  list.Invalid("smallest dimension", "dimension",
               [](RawGraph& g) { g.node(0)->set_arg(2, INT64_MIN); });
  list.Invalid("product that overflows", "elements",
               [](RawGraph& g) { g.Param(5, kFloat, {uint64_t{1} << 40, uint64_t{1} << 40}); });
  list.Invalid("product that wraps to a small one", "elements",
               [](RawGraph& g) { g.Param(5, kFloat, {uint64_t{1} << 32, uint64_t{1} << 32, 0}); });
  list.Invalid("negative dimension", "negative",
               [](RawGraph& g) { g.Words(Op::kReshape, 0, {-4, -8}); });
  list.Invalid("padding that overflows", "node 6 (pad)",
               [](RawGraph& g) { g.Words(Op::kPad, 0, {INT64_MAX, INT64_MAX, 0, 8}); });
  list.Invalid("padding beyond the limit", "elements",
               [](RawGraph& g) { g.Words(Op::kPad, 0, {0, int64_t{1} << 48, 0, 8}); });
  list.Invalid("expansion beyond the limit", "elements", [](RawGraph& g) {
    const uint32_t column = g.Words(Op::kReshape, 0, {4, 8, 1});
    g.Words(Op::kExpand, column, {4, 8, int64_t{1} << 60});
  });
  list.Invalid("gather beyond the limit", "elements", [](RawGraph& g) {
    const uint32_t rows = g.Param(5, kFloat, {1, uint64_t{1} << 30});
    const uint32_t index = g.Param(6, DType::kInt32, {uint64_t{1} << 30});
    g.Add(Op::kGather, DType::kVoid, {rows, index});
  });
  list.Invalid("rank beyond the limit", "rank 17", [](RawGraph& g) {
    g.Words(Op::kReshape, 0, {4, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  });
}

void Effects(List& list) {
  list.Invalid("sink of a value", "node 6 (sink)",
               [](RawGraph& g) { g.Add(Op::kSink, DType::kVoid, {kAddIndex}); });
  list.Invalid("store as a value", "node 6 (neg)",
               [](RawGraph& g) { g.Add(Op::kNeg, DType::kVoid, {kStoreIndex}); });
  list.Invalid("store of a store", "node 6 (store)",
               [](RawGraph& g) { g.Add(Op::kStore, DType::kVoid, {kOutIndex, kStoreIndex}); });
  list.Invalid("sink of a sink", "node 5 (sink): expected only as the root",
               [](RawGraph& g) { g.Add(Op::kSink, DType::kVoid, {kSinkIndex}); });
  list.Invalid("store to a computed value", "node 4 (store): source 0 is add",
               [](RawGraph& g) { g.node(kStoreIndex)->set_src(0, kAddIndex); });
  list.Invalid("one slot, two shapes", "slot 0", [](RawGraph& g) {
    g.node(1)->set_arg(0, 0), g.node(1)->set_arg(2, 8), g.node(1)->set_arg(3, 4),
        g.node(kAddIndex)->set_src(1, 0), g.node(kSinkIndex)->add_src(kStoreIndex),
        g.Words(Op::kReshape, 1, {4, 8}), g.Add(Op::kStore, DType::kVoid, {6, 0}),
        g.Add(Op::kSink, DType::kVoid, {kStoreIndex, 7});
  });
  list.Invalid("two stores in no order", "no defined order", [](RawGraph& g) {
    const uint32_t second = g.Add(Op::kStore, DType::kVoid, {kOutIndex, 0});
    g.Add(Op::kSink, DType::kVoid, {kStoreIndex, second});
  });
  list.Invalid("after a store to another slot", "expected slot 0", [](RawGraph& g) {
    const uint32_t after = g.Add(Op::kAfter, DType::kVoid, {0, kStoreIndex});
    const uint32_t store = g.Add(Op::kStore, DType::kVoid, {1, after});
    g.Add(Op::kSink, DType::kVoid, {store});
  });
}

}  // namespace

RawGraph::RawGraph() { proto_.set_form(kGraphForm); }

uint32_t RawGraph::Add(Op op, DType dtype, std::initializer_list<uint32_t> src) {
  v1::Node* node = proto_.add_nodes();
  node->set_op(static_cast<uint32_t>(Info(op).wire));
  node->set_dtype(static_cast<uint32_t>(Info(dtype).wire));
  for (uint32_t s : src) node->add_src(s);
  const auto index = static_cast<uint32_t>(proto_.nodes_size() - 1);
  proto_.set_root(index);
  return index;
}

uint32_t RawGraph::Param(uint32_t slot, DType dtype, std::initializer_list<uint64_t> dims) {
  const uint32_t index = Add(Op::kParam, dtype, {});
  v1::Node* n = node(index);
  n->add_arg(slot);
  n->add_arg(0);
  for (uint64_t dim : dims) n->add_arg(static_cast<int64_t>(dim));
  return index;
}

uint32_t RawGraph::Words(Op op, uint32_t src, std::initializer_list<int64_t> words) {
  const uint32_t index = Add(op, DType::kVoid, {src});
  node(index)->mutable_arg()->Assign(words.begin(), words.end());
  return index;
}

void RawGraph::Finish(uint32_t slot, DType dtype, std::initializer_list<uint64_t> dims,
                      uint32_t value) {
  const uint32_t out = Param(slot, dtype, dims);
  Add(Op::kSink, DType::kVoid, {Add(Op::kStore, DType::kVoid, {out, value})});
}

std::vector<HostileGraph> HostileGraphs() {
  List list;
  Structure(list);
  Numbers(list);
  Arguments(list);
  Sizes(list);
  Effects(list);
  return list.Take();
}

v1::Graph DeepChain(int nodes) {
  RawGraph g;
  uint32_t value = g.Param(0, kFloat, {2});
  while (g.proto().nodes_size() < nodes - 3) value = g.Add(Op::kNeg, DType::kVoid, {value});
  g.Finish(1, kFloat, {2}, value);
  return std::move(g.proto());
}

}  // namespace telegrad::testing
