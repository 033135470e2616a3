// One function for each way to make a small graph expensive.
#include "engine/wire/testing/adversarial_graphs.h"

#include <utility>

#include "engine/ir/graph.h"
#include "engine/types/limits.h"
#include "engine/wire/graph_codec.h"

namespace telegrad::testing {
namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr DType kI32 = DType::kInt32;

UOp Words(Graph& g, Op op, UOp x, const Shape& words) { return g.Make(op, {x}, words); }

UOp Sum(Graph& g, UOp x, const Shape& axes) {
  Shape arg{static_cast<int64_t>(ReduceKind::kAdd)};
  arg.insert(arg.end(), axes.begin(), axes.end());
  return g.Make(Op::kReduce, {x}, arg);
}

UOp Store(Graph& g, int64_t slot, UOp value) {
  return g.Make(Op::kStore, {g.Param(slot, value.dtype(), value.shape()), value});
}

v1::Graph Sent(Graph& g, UOp sink) {
  v1::Graph message;
  if (g.status().ok()) ToProto(sink, &message);
  return message;
}

v1::Graph Finish(Graph& g, int64_t slot, UOp value) {
  if (!value.valid()) return {};
  return Sent(g, g.Make(Op::kSink, {Store(g, slot, value)}));
}

// 2^60 paths from the output to the input.
v1::Graph Diamonds() {
  Graph g;
  UOp value = g.Param(0, kI32, Shape{4});
  for (int i = 0; i < 60; ++i) value = g.Make(Op::kAdd, {value, value});
  return Finish(g, 1, value);
}

// The same, every path at indices of its own: each level reads the one below at two places.
v1::Graph ShiftedDiamonds(bool permuted) {
  Graph g;
  UOp value = g.Param(0, kF32, Shape{256, 256});
  for (int i = 0; i < 60; ++i) {
    const UOp a = permuted ? Words(g, Op::kPermute, value, {1, 0}) : value;
    const UOp b = Words(g, Op::kFlip, value, {i % 2});
    const UOp flat = Words(g, Op::kReshape, b, {64, 1024});
    const UOp turned = Words(g, Op::kPermute, flat, {1, 0});
    value = g.Make(Op::kAdd, {a, Words(g, Op::kReshape, turned, {256, 256})});
  }
  return Finish(g, 1, value);
}

// Every reshape cuts the elements at other places, so that indices become quotients of remainders
// of quotients.
v1::Graph ReshapeChain(int length) {
  Graph g;
  UOp value = g.Param(0, kF32, Shape{2310 * 13});
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
  return Finish(g, 1, Words(g, Op::kReshape, value, {2310 * 13}));
}

// Reductions of expansions of reductions: each level multiplies the work of the one below, if that
// is not stored.
v1::Graph ReduceTower(int levels) {
  Graph g;
  UOp value = g.Param(0, kF32, Shape{64, 1});
  for (int i = 0; i < levels; ++i) {
    const UOp wide = Words(g, Op::kExpand, value, {64, 1024});
    value = Sum(g, g.Make(Op::kMul, {wide, wide}), {1});
  }
  return Finish(g, 1, value);
}

// A binary tree of sums over sums.
v1::Graph ReduceTree(int leaves) {
  Graph g;
  std::vector<UOp> values;
  for (int i = 0; i < leaves; ++i) {
    values.push_back(Sum(g, g.Param(i, kF32, Shape{8, 8}), {0}));
  }
  while (values.size() > 1) {
    std::vector<UOp> next;
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      const UOp both = g.Make(Op::kAdd, {values[i], values[i + 1]});
      next.push_back(Sum(g, Words(g, Op::kExpand, both, {8, 8}), {0}));
    }
    values = std::move(next);
  }
  return Finish(g, leaves, values[0]);
}

// As many sources as a node may have.
v1::Graph WideFanIn() {
  Graph g;
  std::vector<UOp> stores, sources;
  for (int i = 0; i < kMaxParams; ++i) {
    const UOp param = g.Param(i, kF32, Shape{2});
    stores.push_back(g.Make(Op::kStore, {param, g.ConstFloat(kF32, 1)}));
  }
  for (size_t i = 0; i < kMaxSources; ++i) sources.push_back(stores[i % stores.size()]);
  return Sent(g, g.Make(Op::kSink, DType::kVoid, sources));
}

// One sum of thousands of parameters: a kernel with as many arguments, if nothing splits it.
v1::Graph WideSum(int terms) {
  Graph g;
  UOp sum = g.Param(0, kF32, Shape{16});
  for (int i = 1; i < terms; ++i) {
    sum = g.Make(Op::kAdd, {sum, g.Param(i, kF32, Shape{16})});
  }
  return Finish(g, terms, sum);
}

// The largest tensors there may be, and sums over them.
v1::Graph HugeDims() {
  Graph g;
  const UOp x = g.Param(0, kF32, Shape{1, 1});
  const UOp wide = Words(g, Op::kExpand, x, {int64_t{1} << 20, int64_t{1} << 20});
  const UOp sum = Sum(g, g.Make(Op::kMul, {wide, wide}), {0, 1});
  return Finish(g, 1, sum);
}

// Nothing to compute, in many steps.
v1::Graph ZeroSizes(int length) {
  Graph g;
  UOp value = g.Param(0, kF32, Shape{0, 1024});
  for (int i = 0; i < length; ++i) {
    value = Words(g, Op::kReshape, value, i % 2 == 0 ? Shape{1024, 0} : Shape{0, 1024});
    value = g.Make(Op::kAdd, {value, value});
  }
  const UOp sum = Sum(g, value, {0, 1});
  return Finish(g, 1, sum);
}

// Index arithmetic over all the axes there may be.
v1::Graph HighRank(int length) {
  Graph g;
  const std::vector<int64_t> twos(kMaxRank, 2);
  std::vector<int64_t> rotate;
  for (int64_t i = 0; i < kMaxRank; ++i) rotate.push_back((i + 1) % kMaxRank);
  UOp value = Words(g, Op::kReshape, g.Param(0, kF32, Shape{int64_t{1} << kMaxRank}), twos);
  for (int i = 0; i < length; ++i) {
    value = Words(g, Op::kFlip, Words(g, Op::kPermute, value, rotate), {i % kMaxRank});
    const UOp flat = Words(g, Op::kReshape, value, {int64_t{1} << kMaxRank});
    value = Words(g, Op::kReshape, Words(g, Op::kFlip, flat, {0}), twos);
  }
  return Finish(g, 1, Words(g, Op::kReshape, value, {int64_t{1} << kMaxRank}));
}

// A gather of a gather of a gather.
v1::Graph GatherChain(int length) {
  Graph g;
  const UOp table = g.Param(0, kI32, Shape{64});
  UOp index = g.Param(1, kI32, Shape{64});
  for (int i = 0; i < length; ++i) index = g.Make(Op::kGather, {table, index});
  return Finish(g, 2, index);
}

// Stores to one slot, each to the whole of it in another order.
v1::Graph ManyStores(int stores) {
  Graph g;
  const UOp param = g.Param(0, kF32, Shape{64, 1});
  UOp target = param, store;
  for (int i = 0; i < stores; ++i) {
    store = g.Make(Op::kStore, {Words(g, Op::kFlip, target, {i % 2}), param});
    target = g.Make(Op::kAfter, {param, store});
  }
  return Sent(g, g.Make(Op::kSink, {store}));
}

// Two stores to each slot, ordered by their values alone: a chain of `length` nodes lies between
// all first and all second ones, and the verifier has to walk it for every slot.
v1::Graph HiddenOrder(int slots, int length) {
  Graph g;
  const UOp one = g.ConstFloat(kF32, 1);
  UOp value = one;
  std::vector<UOp> params, seconds;
  for (int i = 0; i < slots; ++i) {
    params.push_back(g.Param(i, kF32, Shape{2}));
    const UOp first = g.Make(Op::kStore, {params.back(), one});
    value = g.Make(Op::kAdd, {value, g.Make(Op::kAfter, {params.back(), first})});
  }
  for (int i = 0; i < length; ++i) value = g.Make(Op::kNeg, {value});
  for (UOp param : params) seconds.push_back(g.Make(Op::kStore, {param, value}));
  return Sent(g, g.Make(Op::kSink, DType::kVoid, seconds));
}

// Shapes of no elements between which no position corresponds to any, where a pad reads them.
v1::Graph NothingUnderAPad() {
  Graph g;
  const UOp one = Words(g, Op::kReshape, g.ConstFloat(kF32, 1), {1, 1});
  const UOp nothing = Words(g, Op::kReshape, Words(g, Op::kExpand, one, {0, 3}), {5, 0});
  return Finish(g, 0, Sum(g, Words(g, Op::kPad, nothing, {0, 5, 0, 4}), {1}));
}

// Sums of casts of the same sums, on which a masked reduction depends: 10^levels ways to the
// bottom.
v1::Graph WideningSums(int levels) {
  constexpr int64_t kAxes = 7, kSums = 10;
  Graph g;
  const Shape all(kAxes, 2);
  std::vector<UOp> sums;
  for (int64_t axis = 0; axis < kAxes; ++axis) {
    Shape dims(kAxes, 1);
    dims[static_cast<size_t>(axis)] = 2;
    const UOp iota = g.Make(Op::kIota, DType::kInt64, {}, {2});
    sums.push_back(Words(g, Op::kExpand, Words(g, Op::kReshape, iota, dims), all));
  }
  for (int level = 0; level < levels; ++level) {
    std::vector<UOp> next;
    for (int64_t n = 0; n < kSums; ++n) {
      UOp sum = sums[0];
      for (size_t i = 1; i < sums.size(); ++i) {
        sum = g.Make((n >> (i % 4) & 1) != 0 ? Op::kAdd : Op::kSub, {sum, sums[i]});
      }
      next.push_back(sum);
    }
    const DType dtype = level % 2 == 0 ? DType::kInt32 : DType::kInt64;
    for (UOp& sum : next) sum = g.Make(Op::kCast, dtype, {sum});
    sums = std::move(next);
  }
  const auto spread = [&](int64_t value) {
    const UOp scalar = g.Const(sums[0].dtype(), value);
    return Words(g, Op::kExpand, Words(g, Op::kReshape, scalar, Shape(kAxes, 1)), all);
  };
  const UOp found = g.Make(Op::kCmpEq, {sums[0], spread(3)});
  return Finish(g, 0, Sum(g, g.Make(Op::kWhere, {found, spread(1), spread(0)}), {kAxes - 1}));
}

// An index that is a sum of Fibonacci many terms.
v1::Graph SharedSumsOfIndices(int levels) {
  Graph g;
  const Shape shape{256};
  int64_t slot = 2;
  const auto index = [&] { return g.Param(slot++, DType::kInt64, shape); };
  UOp x = index(), y = index();
  for (int i = 0; i < 34; ++i) x = g.Make(Op::kAdd, {x, index()});
  for (int i = 0; i < levels; ++i) {
    const UOp sum = g.Make(Op::kAdd, {x, y});
    y = g.Make(Op::kAdd, {x, index()});
    x = sum;
  }
  return Finish(g, 0, g.Make(Op::kGather, {g.Param(1, kF32, Shape{1000}), x}));
}

// A value that each of many kernels reads.
v1::Graph ManyKernelsOfOneValue(int kernels) {
  Graph g;
  const UOp value = g.Param(1, kF32, Shape{64});
  UOp out = value;
  for (int i = 0; i < kernels; ++i) {
    out = g.Make(Op::kContiguous, {g.Make(Op::kAdd, {Words(g, Op::kFlip, out, {0}), value})});
  }
  return Finish(g, 0, out);
}

}  // namespace

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
  add("hidden order of stores", HiddenOrder(3'000, 20'000));
  add("nothing under a pad", NothingUnderAPad());
  add("sums of casts of sums", WideningSums(8));
  add("shared sums of indices", SharedSumsOfIndices(45));
  add("many kernels of one value", ManyKernelsOfOneValue(1'000));
  return graphs;
}

}  // namespace telegrad::testing
