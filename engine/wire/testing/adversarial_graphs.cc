// One function for each way to make a small graph expensive.
#include "engine/wire/testing/adversarial_graphs.h"

#include <utility>

#include "engine/types/limits.h"
#include "engine/wire/testing/hostile_graphs.h"

namespace telegrad::testing {
namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr DType kI32 = DType::kInt32;
constexpr DType kVoid = DType::kVoid;

uint32_t Words(RawGraph& g, Op op, uint32_t src, const std::vector<int64_t>& words) {
  const uint32_t index = g.Words(op, src, {});
  v1::Node* n = g.node(index);
  const ArgKind kind = Info(op).arg;
  v1::Words* out = kind == ArgKind::kDims   ? n->mutable_dims()
                   : kind == ArgKind::kAxes ? n->mutable_axes()
                                            : n->mutable_pairs();
  out->mutable_word()->Assign(words.begin(), words.end());
  return index;
}

uint32_t Reduce(RawGraph& g, uint32_t src, std::initializer_list<uint32_t> axes) {
  const uint32_t index = g.Add(Op::kReduce, kVoid, {src});
  for (uint32_t axis : axes) g.node(index)->mutable_reduce()->add_axes(axis);
  g.node(index)->mutable_reduce()->set_kind(0);
  return index;
}

// 2^60 paths from the output to the input.
v1::Graph Diamonds() {
  RawGraph g;
  uint32_t value = g.Param(0, kI32, {4});
  for (int i = 0; i < 60; ++i) value = g.Add(Op::kAdd, kVoid, {value, value});
  g.Finish(1, kI32, {4}, value);
  return std::move(g.proto());
}

// The same, every path at indices of its own: each level reads the one below at two places.
v1::Graph ShiftedDiamonds(bool permuted) {
  RawGraph g;
  uint32_t value = g.Param(0, kF32, {256, 256});
  for (int i = 0; i < 60; ++i) {
    const uint32_t a = permuted ? Words(g, Op::kPermute, value, {1, 0}) : value;
    const uint32_t b = Words(g, Op::kFlip, value, {i % 2});
    const uint32_t flat = Words(g, Op::kReshape, b, {64, 1024});
    const uint32_t turned = Words(g, Op::kPermute, flat, {1, 0});
    value = g.Add(Op::kAdd, kVoid, {a, Words(g, Op::kReshape, turned, {256, 256})});
  }
  g.Finish(1, kF32, {256, 256}, value);
  return std::move(g.proto());
}

// Every reshape cuts the elements at other places, so that indices become quotients of remainders
// of quotients.
v1::Graph ReshapeChain(int length) {
  RawGraph g;
  uint32_t value = g.Param(0, kF32, {2310 * 13});
  const std::vector<std::vector<int64_t>> shapes = {{2 * 13, 3 * 5 * 7 * 11},
                                                    {3 * 7, 13 * 11, 2 * 5},
                                                    {5 * 11, 2 * 3 * 13 * 7},
                                                    {7, 2, 13 * 5 * 3, 11}};
  for (int i = 0; i < length; ++i) {
    const std::vector<int64_t>& to = shapes[static_cast<size_t>(i) % shapes.size()];
    value = Words(g, Op::kReshape, value, to);
    std::vector<int64_t> axes;
    for (size_t k = to.size(); k-- > 0;) axes.push_back(static_cast<int64_t>(k));
    value = Words(g, Op::kPermute, value, axes);
  }
  g.Finish(1, kF32, {2310 * 13}, Words(g, Op::kReshape, value, {2310 * 13}));
  return std::move(g.proto());
}

// Reductions of expansions of reductions: each level multiplies the work of the one below, if that
// is not stored.
v1::Graph ReduceTower(int levels) {
  RawGraph g;
  uint32_t value = g.Param(0, kF32, {64, 1});
  for (int i = 0; i < levels; ++i) {
    const uint32_t wide = Words(g, Op::kExpand, value, {64, 1024});
    value = Reduce(g, g.Add(Op::kMul, kVoid, {wide, wide}), {1});
  }
  g.Finish(1, kF32, {64, 1}, value);
  return std::move(g.proto());
}

// A binary tree of sums over sums.
v1::Graph ReduceTree(int leaves) {
  RawGraph g;
  std::vector<uint32_t> values;
  for (int i = 0; i < leaves; ++i) {
    values.push_back(Reduce(g, g.Param(static_cast<uint32_t>(i), kF32, {8, 8}), {0}));
  }
  while (values.size() > 1) {
    std::vector<uint32_t> next;
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      const uint32_t both = g.Add(Op::kAdd, kVoid, {values[i], values[i + 1]});
      next.push_back(Reduce(g, Words(g, Op::kExpand, both, {8, 8}), {0}));
    }
    values = std::move(next);
  }
  g.Finish(static_cast<uint32_t>(leaves), kF32, {1, 8}, values[0]);
  return std::move(g.proto());
}

// As many sources as a node may have.
v1::Graph WideFanIn() {
  RawGraph g;
  const uint32_t one = g.Add(Op::kConst, kF32, {});
  g.node(one)->mutable_scalar()->set_real(1);
  std::vector<uint32_t> stores;
  for (int i = 0; i < kMaxParams; ++i) {
    stores.push_back(g.Add(Op::kStore, kVoid, {g.Param(static_cast<uint32_t>(i), kF32, {2}), one}));
  }
  const uint32_t sink = g.Add(Op::kSink, kVoid, {});
  for (int i = 0; i < kMaxSources; ++i)
    g.node(sink)->add_src(stores[static_cast<size_t>(i) % stores.size()]);
  return std::move(g.proto());
}

// One sum of thousands of parameters: a kernel with as many arguments, if nothing splits it.
v1::Graph WideSum(int terms) {
  RawGraph g;
  uint32_t sum = g.Param(0, kF32, {16});
  for (int i = 1; i < terms; ++i) {
    sum = g.Add(Op::kAdd, kVoid, {sum, g.Param(static_cast<uint32_t>(i), kF32, {16})});
  }
  g.Finish(static_cast<uint32_t>(terms), kF32, {16}, sum);
  return std::move(g.proto());
}

// The largest tensors there may be, and sums over them.
v1::Graph HugeDims() {
  RawGraph g;
  const uint32_t x = g.Param(0, kF32, {1, 1});
  const uint32_t wide = Words(g, Op::kExpand, x, {int64_t{1} << 20, int64_t{1} << 20});
  const uint32_t sum = Reduce(g, g.Add(Op::kMul, kVoid, {wide, wide}), {0, 1});
  g.Finish(1, kF32, {1, 1}, sum);
  return std::move(g.proto());
}

// Nothing to compute, in many steps.
v1::Graph ZeroSizes(int length) {
  RawGraph g;
  uint32_t value = g.Param(0, kF32, {0, 1024});
  for (int i = 0; i < length; ++i) {
    value = Words(g, Op::kReshape, value,
                  i % 2 == 0 ? std::vector<int64_t>{1024, 0} : std::vector<int64_t>{0, 1024});
    value = g.Add(Op::kAdd, kVoid, {value, value});
  }
  const uint32_t sum = Reduce(g, value, {0, 1});
  g.Finish(1, kF32, {1, 1}, sum);
  return std::move(g.proto());
}

// Index arithmetic over all the axes there may be.
v1::Graph HighRank(int length) {
  RawGraph g;
  const std::vector<int64_t> twos(kMaxRank, 2);
  std::vector<int64_t> rotate;
  for (int64_t i = 0; i < kMaxRank; ++i) rotate.push_back((i + 1) % kMaxRank);
  uint32_t value = Words(g, Op::kReshape, g.Param(0, kF32, {uint64_t{1} << kMaxRank}), twos);
  for (int i = 0; i < length; ++i) {
    value = Words(g, Op::kFlip, Words(g, Op::kPermute, value, rotate), {i % kMaxRank});
    const uint32_t flat = Words(g, Op::kReshape, value, {int64_t{1} << kMaxRank});
    value = Words(g, Op::kReshape, Words(g, Op::kFlip, flat, {0}), twos);
  }
  g.Finish(1, kF32, {uint64_t{1} << kMaxRank},
           Words(g, Op::kReshape, value, {int64_t{1} << kMaxRank}));
  return std::move(g.proto());
}

// A gather of a gather of a gather.
v1::Graph GatherChain(int length) {
  RawGraph g;
  const uint32_t table = g.Param(0, kI32, {64});
  uint32_t index = g.Param(1, kI32, {64});
  for (int i = 0; i < length; ++i) index = g.Add(Op::kGather, kVoid, {table, index});
  g.Finish(2, kI32, {64}, index);
  return std::move(g.proto());
}

}  // namespace

v1::Graph ManyStores(int stores) {
  RawGraph g;
  const auto n = static_cast<uint64_t>(stores);
  const uint32_t param = g.Param(0, kF32, {n, 1});
  uint32_t target = param, store = 0;
  for (int i = 0; i < stores; ++i) {
    const uint32_t row = Words(g, Op::kFlip, target, {i % 2});
    store = g.Add(Op::kStore, kVoid, {row, param});
    target = g.Add(Op::kAfter, kVoid, {param, store});
  }
  g.Add(Op::kSink, kVoid, {store});
  return std::move(g.proto());
}

v1::Graph HiddenOrder(int stores, int length) {
  RawGraph g;
  const uint32_t param = g.Param(0, kF32, {4});
  // Beside each store hangs a chain that leads nowhere and is passed before the one that proves.
  uint32_t dead_end = param;
  for (int i = 0; i < length; ++i) dead_end = g.Add(Op::kNeg, kVoid, {dead_end});
  uint32_t value = dead_end, store = 0;
  for (int i = 0; i < stores; ++i) {
    store = g.Add(Op::kStore, kVoid, {param, value});
    uint32_t after = g.Add(Op::kAfter, kVoid, {param, store});
    for (int k = 0; k < length; ++k) after = g.Add(Op::kAdd, kVoid, {after, after});
    value = after;
  }
  g.Add(Op::kSink, kVoid, {store});
  return std::move(g.proto());
}

std::vector<AdversarialGraph> AdversarialGraphs() {
  std::vector<AdversarialGraph> graphs;
  const auto add = [&](std::string name, v1::Graph graph) {
    graphs.push_back({std::move(name), std::move(graph)});
  };
  add("2^60 paths", Diamonds());
  add("2^60 paths at indices of their own", ShiftedDiamonds(false));
  add("2^60 paths at permuted indices of their own", ShiftedDiamonds(true));
  add("reshape chain", ReshapeChain(400));
  add("reduce tower", ReduceTower(300));
  add("reduce tree", ReduceTree(1024));
  add("widest sink", WideFanIn());
  add("wide sum", WideSum(kMaxParams - 1));
  add("huge dims", HugeDims());
  add("zero sizes", ZeroSizes(10'000));
  add("highest rank", HighRank(60));
  add("gather chain", GatherChain(2'000));
  add("many stores to one slot", ManyStores(3'000));
  add("hidden order of stores", HiddenOrder(200, 500));
  return graphs;
}

}  // namespace telegrad::testing
