// One reverse sweep over the node ids, which are a topological order. Only nodes between `wrt` and
// the loss are visited. A rule gets a node, its sources and the gradient of its value and returns a
// gradient for each source, an empty tensor meaning zero; the sweep sums them up. A scalar source
// that the op broadcast gets the sum.
#include "engine/frontend/gradient.h"

#include <array>
#include <numbers>

#include "engine/base/status.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/shapes.h"

namespace telegrad {
namespace {

using Grads = std::vector<Tensor>;

struct Node {
  Tensor out;  // the node itself
  std::vector<Tensor> src;
  std::vector<int64_t> arg;

  const Tensor& x() const { return src[0]; }
  const Tensor& y() const { return src[1]; }
  Shape x_shape() const { return ToShape(src[0].shape()); }
};

using Rule = Grads (*)(const Node& n, const Tensor& g);

Grads Stop(const Node&, const Tensor&) { return {}; }
Grads Pass(const Node&, const Tensor& g) { return {g}; }

Grads Expand(const Node& n, const Tensor& g) {
  Axes axes;
  for (int64_t i = 0; i < g.rank(); ++i) {
    if (n.x().shape()[i] != g.shape()[i]) axes.push_back(i);
  }
  return {g.Sum(axes, true)};
}

Grads Permute(const Node& n, const Tensor& g) {
  Axes inverse(n.arg.size());
  for (size_t i = 0; i < n.arg.size(); ++i) inverse[n.arg[i]] = static_cast<int64_t>(i);
  return {g.Permute(inverse)};
}

Grads Pad(const Node& n, const Tensor& g) {
  std::vector<int64_t> pairs = n.arg;
  for (size_t i = 0; i < pairs.size(); i += 2) pairs[i + 1] = pairs[i] + n.x().shape()[i / 2];
  return {g.Shrink(pairs)};
}

Grads Shrink(const Node& n, const Tensor& g) {
  std::vector<int64_t> pairs = n.arg;
  for (size_t i = 0; i < pairs.size(); i += 2)
    pairs[i + 1] = n.x().shape()[i / 2] - pairs[i] - pairs[i + 1];
  return {g.Pad(pairs)};
}

Grads Cast(const Node& n, const Tensor& g) { return {g.Cast(n.x().dtype())}; }

Grads Maximum(const Node& n, const Tensor& g) {
  const Tensor first = n.y().Lt(n.x());
  return {first.Where(g, g.Like(0)), first.Where(g.Like(0), g)};
}

Grads Where(const Node& n, const Tensor& g) {
  return {Tensor(), n.x().Where(g, g.Like(0)), n.x().Where(g.Like(0), g)};
}

Grads Reduce(const Node& n, const Tensor& g) {
  const auto kind = static_cast<ReduceKind>(n.arg[0]);
  const Tensor spread = g.Expand(n.x_shape());
  if (kind == ReduceKind::kAdd) return {spread};
  if (kind == ReduceKind::kMul) {
    n.out.builder()->Fail(Unimplemented("gradient: a product over axes has no rule"));
    return {};
  }
  const Tensor hit = n.x().Eq(n.out.Expand(n.x_shape()));
  const Tensor hits = hit.Cast(g.dtype()).Sum(Axes(n.arg.begin() + 1, n.arg.end()), true);
  return {hit.Where((g / hits).Expand(n.x_shape()), g.Like(0))};
}

// Row r of the source gets the sum of g[i] over all i whose index is r.
Grads Gather(const Node& n, const Tensor& g) {
  const int64_t rows = n.x().dim(0), picks = n.y().size();
  const Tensor index = n.y().Reshape({picks});
  const Tensor picked = index.OneHot(rows).Transpose().Unsqueeze(-1);  // [rows, picks, 1]
  const int64_t width = rows == 0 ? 0 : n.x().size() / rows;
  const Tensor flat = g.Reshape({1, picks, width});
  return {picked.Where(flat, g.Like(0)).Sum({1}).Reshape(n.x_shape())};
}

struct Row {
  Op op;
  Rule rule;
};

constexpr Row kRules[] = {
    {Op::kReshape, [](const Node& n, const Tensor& g) { return Grads{g.Reshape(n.x_shape())}; }},
    {Op::kExpand, Expand},
    {Op::kPermute, Permute},
    {Op::kFlip, [](const Node& n, const Tensor& g) { return Grads{g.Flip(n.arg)}; }},
    {Op::kPad, Pad},
    {Op::kShrink, Shrink},
    {Op::kNeg, [](const Node&, const Tensor& g) { return Grads{-g}; }},
    {Op::kExp2,
     [](const Node& n, const Tensor& g) { return Grads{g * n.out * std::numbers::ln2}; }},
    {Op::kLog2,
     [](const Node& n, const Tensor& g) { return Grads{g / (n.x() * std::numbers::ln2)}; }},
    {Op::kSqrt, [](const Node& n, const Tensor& g) { return Grads{g / (n.out * 2.0)}; }},
    {Op::kRecip, [](const Node& n, const Tensor& g) { return Grads{-(g * n.out * n.out)}; }},
    {Op::kTrunc, Stop},
    {Op::kFloor, Stop},
    {Op::kCast, Cast},
    {Op::kAdd, [](const Node&, const Tensor& g) { return Grads{g, g}; }},
    {Op::kSub, [](const Node&, const Tensor& g) { return Grads{g, -g}; }},
    {Op::kMul, [](const Node& n, const Tensor& g) { return Grads{g * n.y(), g * n.x()}; }},
    {Op::kFDiv,
     [](const Node& n, const Tensor& g) { return Grads{g / n.y(), -(g * n.out / n.y())}; }},
    {Op::kMax, Maximum},
    {Op::kWhere, Where},
    {Op::kReduce, Reduce},
    {Op::kGather, Gather},
    {Op::kAfter, Pass},
    {Op::kContiguous, Pass},
    {Op::kDetach, Stop},
};

constexpr auto kRuleOf = [] {
  std::array<Rule, kNumOps> table{};
  for (const Row& row : kRules) table[static_cast<size_t>(row.op)] = row.rule;
  return table;
}();

// Which nodes up to `last` depend on one of `wrt` through float values.
NodeMap<bool> Dependents(const Graph& graph, uint32_t last, std::span<const Tensor> wrt) {
  NodeMap<bool> out(graph, false);
  for (const Tensor& w : wrt) out[w.uop()] = true;
  for (uint32_t id = 0; id <= last; ++id) {
    if (!IsFloat(graph.dtype(id))) continue;
    for (uint32_t s : graph.src(id)) {
      if (out[s]) out[id] = true;
    }
  }
  return out;
}

Node NodeOf(Builder* builder, uint32_t id) {
  const UOp uop = builder->graph().at(id);
  Node n{Tensor(builder, uop), {}, {uop.arg().begin(), uop.arg().end()}};
  for (int i = 0; i < uop.num_src(); ++i) n.src.emplace_back(builder, uop.src(i));
  return n;
}

}  // namespace

std::vector<Tensor> Gradients(const Tensor& loss, std::span<const Tensor> wrt) {
  Builder* builder = loss.builder();
  std::vector<Tensor> out(wrt.size());
  if (builder == nullptr) return out;
  const auto fail = [&](absl::Status status) {
    const Tensor failed = builder->Fail(std::move(status));
    return std::vector<Tensor>(wrt.size(), failed);
  };
  if (!loss.valid() || loss.size() != 1 || !IsFloat(loss.dtype())) {
    return fail(InvalidArgument("gradient: the loss is ", Name(loss.dtype()), " ",
                                ToString(loss.shape()), ", expected one element of a float type"));
  }
  for (const Tensor& w : wrt) {
    if (!w.valid() || w.builder() != builder || !IsFloat(w.dtype())) {
      return fail(InvalidArgument("gradient: with respect to ", Name(w.dtype()), " ",
                                  ToString(w.shape()),
                                  ", expected a float tensor of this builder"));
    }
  }

  const Graph& graph = builder->graph();
  const uint32_t last = loss.uop().id();
  const NodeMap<bool> needed = Dependents(graph, last, wrt);
  std::vector<Tensor> grads(last + 1);
  grads[last] = builder->Full(loss.dtype(), ToShape(loss.shape()), 1);
  for (uint32_t id = last + 1; id-- > 0;) {
    const Tensor g = grads[id];
    if (!g.valid() || !needed.at(id) || graph.src(id).empty()) continue;
    const Rule rule = kRuleOf[static_cast<size_t>(graph.op(id))];
    const Builder::Derivative* derivative = builder->FindDerivative(id);
    if (rule == nullptr && derivative == nullptr) {
      return fail(Unimplemented("gradient: ", Name(graph.op(id)), " has no rule"));
    }
    Node node = NodeOf(builder, id);
    if (derivative != nullptr) node.src = derivative->sources;
    const Grads contributions = derivative != nullptr ? derivative->rule(g) : rule(node, g);
    if (!builder->status().ok()) return fail(builder->status());
    for (size_t i = 0; i < contributions.size(); ++i) {
      const uint32_t s = node.src[i].uop().id();
      if (!contributions[i].valid() || !needed.at(s)) continue;
      Tensor part = contributions[i];
      if (part.rank() != 0 && node.src[i].rank() == 0) part = part.Sum();
      grads[s] = grads[s].valid() ? grads[s] + part : part;
    }
  }
  for (size_t i = 0; i < wrt.size(); ++i) {
    const uint32_t id = wrt[i].uop().id();
    const Shape shape = ToShape(wrt[i].shape());
    const bool reached = id <= last && grads[id].valid();
    out[i] = reached ? grads[id].Expand(shape) : builder->Full(wrt[i].dtype(), shape, 0);
  }
  return out;
}

}  // namespace telegrad
