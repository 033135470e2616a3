// One reverse sweep over the node ids, which are a topological order. Only nodes between `wrt` and
// the outputs are visited. What the rules say of a node's sources is summed up; a scalar source
// that the op broadcast gets the sum over all elements. An effect (STORE) passes on a gradient too,
// that of the value which it stores.
#include "engine/frontend/autograd/gradient.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/frontend/autograd/gradient_rules.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

// Which nodes up to `last` depend on one of `wrt` through float values, effects and functions.
NodeMap<bool> Dependents(const Graph& graph, uint32_t last, std::span<const Tensor> wrt) {
  NodeMap<bool> out(graph, false);
  for (const Tensor& w : wrt) out[w.uop()] = true;
  for (uint32_t id = 0; id <= last; ++id) {
    if (!IsFloat(graph.dtype(id)) && graph.dtype(id) != DType::kVoid) continue;
    for (uint32_t s : graph.src(id)) {
      if (out[s]) out[id] = true;
    }
  }
  return out;
}

}  // namespace

std::vector<Tensor> Gradients(const Tensor& loss, std::span<const Tensor> wrt) {
  if (loss.builder() == nullptr) return std::vector<Tensor>(wrt.size());
  if (loss.valid() && loss.size() != 1) {
    const Tensor failed =
        loss.builder()->Fail(InvalidArgument("gradient: the loss is ", Name(loss.dtype()), " ",
                                             ToString(loss.dims()), ", expected one element"));
    return std::vector<Tensor>(wrt.size(), failed);
  }
  const Tensor one = loss.OnesLike();
  return Gradients(std::span(&loss, 1), std::span(&one, 1), wrt);
}

std::vector<Tensor> Gradients(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                              std::span<const Tensor> wrt) {
  std::vector<Tensor> out(wrt.size());
  if (outputs.empty() || outputs[0].builder() == nullptr) return out;
  Builder* builder = outputs[0].builder();
  const auto fail = [&](absl::Status status) {
    const Tensor failed = builder->Fail(std::move(status));
    return std::vector<Tensor>(wrt.size(), failed);
  };
  if (seeds.size() != outputs.size()) {
    return fail(InvalidArgument("gradient: ", outputs.size(), " outputs and ", seeds.size(),
                                " gradients of them"));
  }
  uint32_t last = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor &y = outputs[i], &seed = seeds[i];
    if (!y.valid() || y.builder() != builder || !IsFloat(y.dtype()) || !seed.valid() ||
        seed.builder() != builder || seed.dtype() != y.dtype() || seed.dims() != y.dims()) {
      return fail(InvalidArgument("gradient: output ", i, " is ", Name(y.dtype()), " ",
                                  ToString(y.dims()), ", its gradient ", Name(seed.dtype()), " ",
                                  ToString(seed.dims()),
                                  ", expected the same float type and shape of one builder"));
    }
    last = std::max(last, y.uop().id());
  }
  for (const Tensor& w : wrt) {
    if (!w.valid() || w.builder() != builder || !IsFloat(w.dtype())) {
      return fail(InvalidArgument("gradient: with respect to ", Name(w.dtype()), " ",
                                  ToString(w.dims()), ", expected a float tensor of this builder"));
    }
  }

  const Graph& graph = builder->graph();
  const NodeMap<bool> needed = Dependents(graph, last, wrt);
  std::vector<Tensor> grads(last + 1);
  const auto add = [&](uint32_t id, const Tensor& part) {
    grads[id] = grads[id].valid() ? grads[id] + part : part;
  };
  for (size_t i = 0; i < outputs.size(); ++i) add(outputs[i].uop().id(), seeds[i]);
  for (uint32_t id = last + 1; id-- > 0;) {
    const Tensor g = grads[id];
    if (!g.valid() || !needed.at(id) || graph.src(id).empty()) continue;
    const GradientRule rule = FindGradientRule(graph.op(id));
    const Builder::Derivative* derivative = builder->FindDerivative(id);
    if (rule == nullptr && derivative == nullptr) {
      return fail(Unimplemented("gradient: the op ", Name(graph.op(id)),
                                " has no rule; Detach() keeps gradients from it"));
    }
    GradientNode node = GradientNode::Of(builder, graph.at(id));
    if (derivative != nullptr) node.src = derivative->sources;
    const std::vector<Tensor> contributions =
        derivative != nullptr ? derivative->rule(g) : rule(node, g);
    if (!builder->status().ok()) return fail(builder->status());
    for (size_t i = 0; i < contributions.size(); ++i) {
      const uint32_t s = node.src[i].uop().id();
      if (!contributions[i].valid() || !needed.at(s)) continue;
      const Tensor& part = contributions[i];
      const bool was_broadcast =
          part.rank() != 0 && node.src[i].rank() == 0 && node.src[i].dtype() != DType::kVoid;
      add(s, was_broadcast ? part.Sum() : part);
    }
  }
  for (size_t i = 0; i < wrt.size(); ++i) {
    const uint32_t id = wrt[i].uop().id();
    out[i] = id <= last && grads[id].valid() ? grads[id].Expand(wrt[i].dims()) : wrt[i].ZerosLike();
  }
  return out;
}

}  // namespace telegrad
