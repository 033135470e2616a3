// The operators of ai.onnx.preview.training: a step of an optimizer as the standard's pseudo code
// has it, and derivatives, which are nodes of the same graph.
//
// An optimizer's inputs are a rate, a count of steps and then groups: all tensors, all of their
// gradients, and all of each state. Its results are the new tensors and the new states.
#include <algorithm>
#include <span>
#include <vector>

#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad::onnx {
namespace {

// A tensor with its gradient and its states, and the scalars of all of them.
struct Step {
  Tensor rate, count;  // the count in the rate's type
  std::vector<std::vector<Tensor>> groups = {};
};

absl::StatusOr<Step> ReadStep(NodeContext& c, int per_group) {
  TG_ASSIGN_OR_RETURN(const Tensor rate, c.ScalarInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor count, c.ScalarInput(1));
  if (!IsFloat(rate.dtype()) || count.dtype() != DType::kInt64) {
    return InvalidArgument("the rate is ", Name(rate.dtype()), " and the count of steps ",
                           Name(count.dtype()), ", expected a float and i64");
  }
  const int tensors = c.num_inputs() - 2;
  if (tensors == 0 || tensors % per_group != 0) {
    return InvalidArgument("has ", tensors, " tensors, expected a multiple of ", per_group);
  }
  Step out{rate, count.Cast(rate.dtype())};
  const int n = tensors / per_group;
  for (int i = 0; i < n; ++i) {
    std::vector<Tensor>& group = out.groups.emplace_back();
    for (int k = 0; k < per_group; ++k) {
      const int input = 2 + k * n + i;
      TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(input));
      if (!group.empty() && (x.dtype() != group[0].dtype() || x.dims() != group[0].dims())) {
        return InvalidArgument("input ", input, " is ", Name(x.dtype()), " ", ToString(x.dims()),
                               ", but its tensor ", Name(group[0].dtype()), " ",
                               ToString(group[0].dims()));
      }
      group.push_back(x);
    }
  }
  return out;
}

// Results of each group, in the order of the node's: first those of all tensors.
absl::Status OutputSteps(NodeContext& c, const std::vector<std::vector<Tensor>>& results) {
  for (size_t k = 0; k < results[0].size(); ++k) {
    for (const std::vector<Tensor>& of_group : results) TG_RETURN_IF_ERROR(c.Output(of_group[k]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AdagradOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const double norm, c.Float("norm_coefficient", 0));
  TG_ASSIGN_OR_RETURN(const double decay, c.Float("decay_factor", 0));
  TG_ASSIGN_OR_RETURN(const double epsilon, c.Float("epsilon", 1e-6f));
  TG_ASSIGN_OR_RETURN(const Step step, ReadStep(c, 3));
  const Tensor rate = step.rate / (step.count * decay + 1.0);
  std::vector<std::vector<Tensor>> results;
  for (const auto& group : step.groups) {
    const Tensor &x = group[0], gradient = x * norm + group[1];
    const Tensor squares = group[2] + gradient * gradient;
    const Tensor by = gradient / (squares.Sqrt() + epsilon);
    results.push_back({x - rate.Cast(x.dtype()) * by, squares});
  }
  return OutputSteps(c, results);
}

absl::Status AdamOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const double alpha, c.Float("alpha", 0.9f));
  TG_ASSIGN_OR_RETURN(const double beta, c.Float("beta", 0.999f));
  TG_ASSIGN_OR_RETURN(const double epsilon, c.Float("epsilon", 1e-6f));
  TG_ASSIGN_OR_RETURN(const double norm, c.Float("norm_coefficient", 0));
  TG_ASSIGN_OR_RETURN(const double after, c.Float("norm_coefficient_post", 0));
  TG_ASSIGN_OR_RETURN(const Step step, ReadStep(c, 4));
  const Tensor begun = step.count.Gt(0), count = begun.Where(step.count, 1);
  const auto left = [&](double base) { return 1.0 - step.rate.Like(base).Pow(count); };
  const Tensor rate = begun.Where(step.rate * left(beta).Sqrt() / left(alpha), step.rate);
  std::vector<std::vector<Tensor>> results;
  for (const auto& group : step.groups) {
    const Tensor &x = group[0], gradient = x * norm + group[1];
    const Tensor mean = group[2] * alpha + gradient * (1 - alpha);
    const Tensor squares = group[3] * beta + gradient * gradient * (1 - beta);
    const Tensor next = x - rate.Cast(x.dtype()) * mean / (squares.Sqrt() + epsilon);
    results.push_back({after == 0 ? next : next * (1 - after), mean, squares});
  }
  return OutputSteps(c, results);
}

absl::Status MomentumOp(NodeContext& c) {
  for (const std::string_view name : {"alpha", "beta", "norm_coefficient"}) {
    TG_RETURN_IF_ERROR(c.Required(name, AttributeType::kFloat).status());
  }
  TG_ASSIGN_OR_RETURN(const double alpha, c.Float("alpha", 0));
  TG_ASSIGN_OR_RETURN(const double beta, c.Float("beta", 0));
  TG_ASSIGN_OR_RETURN(const double norm, c.Float("norm_coefficient", 0));
  TG_RETURN_IF_ERROR(c.Required("mode", AttributeType::kString).status());
  TG_ASSIGN_OR_RETURN(const std::string_view mode, c.String("mode", ""));
  if (mode != "standard" && mode != "nesterov") {
    return InvalidArgument("mode '", mode, "', expected standard or nesterov");
  }
  TG_ASSIGN_OR_RETURN(const Step step, ReadStep(c, 3));
  const Tensor scale = step.count.Gt(0).Where(step.rate.Like(beta), 1);
  std::vector<std::vector<Tensor>> results;
  for (const auto& group : step.groups) {
    const Tensor &x = group[0], gradient = x * norm + group[1];
    const Tensor velocity = group[2] * alpha + scale.Cast(x.dtype()) * gradient;
    const Tensor by = mode == "standard" ? velocity : gradient + velocity * alpha;
    results.push_back({x - step.rate.Cast(x.dtype()) * by, velocity});
  }
  return OutputSteps(c, results);
}

// The inputs are the values of `xs` and `zs` at which to differentiate: those that the names have
// in the graph. At others the part of the graph between them would have to be computed again.
absl::Status GradientOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(std::vector<std::string_view> names, c.Strings("xs"));
  const size_t count = names.size();
  if (c.HasAttribute("zs")) {
    TG_ASSIGN_OR_RETURN(const std::vector<std::string_view> constant, c.Strings("zs"));
    names.insert(names.end(), constant.begin(), constant.end());
  }
  TG_RETURN_IF_ERROR(c.Required("y", AttributeType::kString).status());
  TG_ASSIGN_OR_RETURN(const std::string_view y_name, c.String("y", ""));
  if (count == 0 || static_cast<size_t>(c.num_inputs()) != names.size()) {
    return InvalidArgument("has ", c.num_inputs(), " inputs, expected one for each of ",
                           names.size(), " names in 'xs' and 'zs'");
  }
  std::vector<Tensor> wrt;
  for (size_t i = 0; i < names.size(); ++i) {
    TG_ASSIGN_OR_RETURN(const Tensor given, c.Input(static_cast<int>(i)));
    TG_ASSIGN_OR_RETURN(const ValueRef value, c.values().Get(names[i]));
    TG_ASSIGN_OR_RETURN(const Tensor named, c.values().ToTensor(value.get()));
    if (given.uop().id() != named.uop().id()) {
      return Unimplemented("input ", i, " is not '", names[i],
                           "': derivatives are those at the values of the names");
    }
    if (i < count) wrt.push_back(named);
  }
  TG_ASSIGN_OR_RETURN(const ValueRef value, c.values().Get(y_name));
  TG_ASSIGN_OR_RETURN(const Tensor y, c.values().ToTensor(value.get()));
  if (!IsFloat(y.dtype())) return InvalidArgument("'y' is ", Name(y.dtype()), ", expected a float");
  const Tensor seed = y.OnesLike();
  const std::vector<Tensor> gradients =
      Gradients(std::span(&y, 1), std::span(&seed, 1), std::span<const Tensor>(wrt));
  TG_RETURN_IF_ERROR(c.builder().status());
  for (size_t i = 0; i < std::min(gradients.size(), c.node().outputs.size()); ++i) {
    TG_RETURN_IF_ERROR(c.Output(gradients[i]));
  }
  return absl::OkStatus();
}

}  // namespace telegrad::onnx
