#include "engine/frontend/io/plan_sizes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/status.h"
#include "engine/rules/fold.h"

namespace telegrad {
namespace {

// The RESHAPE of each slot whose size is open; invalid for the others.
using Views = std::vector<UOp>;

bool IsSized(UOp u) { return u.is(Op::kShrink) && u.src(0).is(Op::kParam) && u.symbolic(); }

absl::StatusOr<Views> FindViews(const Plan& plan) {
  Views views(plan.slots.size());
  const Graph& graph = *plan.graph.graph;
  const std::vector<uint32_t> order = PostOrder(plan.graph.root());
  for (const uint32_t id : order) {
    const UOp u = graph.at(id);
    if (!u.is(Op::kReshape) || !IsSized(u.src(0))) continue;
    UOp& view = views[static_cast<size_t>(u.src(0).src(0).slot())];
    if (view.valid()) {
      return InvalidArgument("slot ", u.src(0).src(0).slot(), " of the plan has two shapes");
    }
    view = u;
  }
  for (const uint32_t id : order) {
    const UOp u = graph.at(id);
    for (const uint32_t s : u.src_ids()) {
      const UOp source = graph.at(s);
      const UOp param = IsSized(source) ? source.src(0) : source;
      if (!param.is(Op::kParam)) continue;
      const UOp view = views[static_cast<size_t>(param.slot())];
      if (!view.valid() || u == view || u == view.src(0)) continue;
      return InvalidArgument("slot ", param.slot(),
                             " of the plan has an open size, and is used without it");
    }
  }
  return views;
}

int VariableOf(const Plan& plan, UOp dim) {
  if (!dim.is(Op::kVar)) return -1;
  const auto it = std::ranges::find(plan.variables, dim.var_id(), &PlanVariable::id);
  return it == plan.variables.end() ? -1 : static_cast<int>(it - plan.variables.begin());
}

// Values of the variables, by their index in the plan.
absl::StatusOr<std::vector<int64_t>> Solve(const Plan& plan, const Views& views,
                                           std::span<const Shape> shapes) {
  std::vector<int64_t> values(plan.variables.size(), -1);
  for (size_t i = 0; i < views.size(); ++i) {
    if (plan.slots[i].role != SlotRole::kInput || !views[i].valid()) continue;
    if (shapes[i].size() != views[i].shape().size()) {
      return InvalidArgument("input '", plan.slots[i].name, "' has shape ", ToString(shapes[i]),
                             ", expected ", views[i].shape().size(), " dimensions");
    }
    for (size_t axis = 0; axis < shapes[i].size(); ++axis) {
      const int number = VariableOf(plan, views[i].dim(static_cast<int>(axis)));
      if (number < 0) continue;
      const PlanVariable& v = plan.variables[static_cast<size_t>(number)];
      const int64_t value = shapes[i][axis];
      if (value < v.min || value > v.max || value % v.multiple != 0) {
        return InvalidArgument("input '", plan.slots[i].name, "' has shape ", ToString(shapes[i]),
                               ", and its dimension ", axis, " (", v.name, ") is from ", v.min,
                               " to ", v.max,
                               v.multiple > 1 ? StrCat(", a multiple of ", v.multiple) : "");
      }
      int64_t& known = values[static_cast<size_t>(number)];
      if (known >= 0 && known != value) {
        return InvalidArgument("input '", plan.slots[i].name, "' has shape ", ToString(shapes[i]),
                               ", and ", v.name, " is ", known, " in another input");
      }
      known = value;
    }
  }
  return values;
}

// The graph with numbers in place of its variables.
class Fixed {
 public:
  Fixed(const Plan& plan, const Views& views, std::span<const int64_t> values)
      : plan_(plan), views_(views), values_(values), made_(plan.graph.graph->size()) {}

  absl::StatusOr<UOp> Build(Budget* budget) {
    const Graph& from = *plan_.graph.graph;
    graph_->LimitSize(budget);
    for (const uint32_t id : PostOrder(plan_.graph.root())) {
      TG_RETURN_IF_ERROR(budget->SpendSteps(1 + static_cast<int64_t>(from.src(id).size())));
      made_[id] = Make(from.at(id));
    }
    TG_RETURN_IF_ERROR(graph_->TakeStatus());
    return made_[plan_.graph.root_id];
  }

  // What a dim of the old graph is now.
  int64_t Dim(UOp u, size_t axis) const {
    const UOp dim = u.dim(static_cast<int>(axis));
    return dim.valid() ? made_[dim.id()].const_word() : u.shape()[axis];
  }

 private:
  UOp Make(UOp u) {
    if (u.is(Op::kVar) && u.num_src() == 0) {
      return graph_->Index(values_[static_cast<size_t>(VariableOf(plan_, u))]);
    }
    if (u.is(Op::kParam) && views_[static_cast<size_t>(u.slot())].valid()) return {};
    if (IsSized(u)) {
      const UOp param = u.src(0);
      const int64_t elements = Dim(u, 0);
      return graph_->Param(param.slot(), param.dtype(), std::span(&elements, 1), param.device());
    }
    const size_t fixed = Is(u.op(), kSymbolic) ? static_cast<size_t>(Info(u.op()).min_src)
                                               : static_cast<size_t>(u.num_src());
    std::vector<UOp> src;
    for (size_t i = 0; i < fixed; ++i) src.push_back(made_[u.src(static_cast<int>(i)).id()]);
    std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    for (int64_t& word : arg) {
      if (!Is(u.op(), kSymbolic) || word >= 0) continue;
      word = made_[u.src(static_cast<int>(-word - 1)).id()].const_word();
    }
    const UOp out = graph_->Make(u.op(), u.dtype(), src, arg);
    const bool number = out.valid() && out.dtype() == DType::kInt64 && out.shape().empty() &&
                        !src.empty() && std::ranges::all_of(src, &UOp::is_const);
    const auto value = number ? Fold(out) : std::nullopt;
    return value ? graph_->ConstWord(DType::kInt64, *value) : out;
  }

  const Plan& plan_;
  const Views& views_;
  const std::span<const int64_t> values_;
  const std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::vector<UOp> made_;  // by the old node
};

absl::Status CheckVariables(const Plan& plan, const Views& views) {
  std::vector<bool> known(plan.variables.size(), false);
  for (size_t i = 0; i < views.size(); ++i) {
    if (plan.slots[i].role != SlotRole::kInput || !views[i].valid()) continue;
    for (size_t axis = 0; axis < views[i].shape().size(); ++axis) {
      const int number = VariableOf(plan, views[i].dim(static_cast<int>(axis)));
      if (number >= 0) known[static_cast<size_t>(number)] = true;
    }
  }
  const auto missing = std::ranges::find(known, false);
  if (missing == known.end()) return absl::OkStatus();
  return Unimplemented("the plan's variable ",
                       plan.variables[static_cast<size_t>(missing - known.begin())].name,
                       " is not a dimension of an input, so that no input tells it");
}

}  // namespace

absl::StatusOr<std::vector<Shape>> OpenShapes(const Plan& plan) {
  TG_ASSIGN_OR_RETURN(const Views views, FindViews(plan));
  TG_RETURN_IF_ERROR(CheckVariables(plan, views));
  std::vector<Shape> out;
  for (size_t i = 0; i < views.size(); ++i) {
    out.push_back(plan.slots[i].shape);
    if (!views[i].valid()) continue;
    out[i].assign(views[i].shape().begin(), views[i].shape().end());
    for (size_t axis = 0; axis < out[i].size(); ++axis) {
      if (views[i].dim(static_cast<int>(axis)).valid()) out[i][axis] = kOpenDim;
    }
  }
  return out;
}

absl::StatusOr<std::vector<std::vector<int>>> DimVariables(const Plan& plan) {
  TG_ASSIGN_OR_RETURN(const Views views, FindViews(plan));
  std::vector<std::vector<int>> out(views.size());
  for (size_t i = 0; i < views.size(); ++i) {
    const size_t rank = views[i].valid() ? views[i].shape().size() : plan.slots[i].shape.size();
    for (size_t axis = 0; axis < rank; ++axis) {
      out[i].push_back(views[i].valid() ? VariableOf(plan, views[i].dim(static_cast<int>(axis)))
                                        : -1);
    }
  }
  return out;
}

absl::StatusOr<Plan> PlanForShapes(const Plan& plan, std::span<const Shape> shapes,
                                   Budget* budget) {
  TG_ASSIGN_OR_RETURN(const Views views, FindViews(plan));
  TG_RETURN_IF_ERROR(CheckVariables(plan, views));
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> values, Solve(plan, views, shapes));
  Fixed fixed(plan, views, values);
  TG_ASSIGN_OR_RETURN(const UOp root, fixed.Build(budget));
  Plan out{.graph = Freeze(root), .slots = plan.slots, .variables = {}};
  for (size_t i = 0; i < views.size(); ++i) {
    for (size_t axis = 0; views[i].valid() && axis < views[i].shape().size(); ++axis) {
      if (axis == 0) out.slots[i].shape.assign(views[i].shape().size(), 0);
      out.slots[i].shape[axis] = fixed.Dim(views[i], axis);
    }
    if (plan.slots[i].role == SlotRole::kInput && out.slots[i].shape != shapes[i]) {
      return InvalidArgument("input '", plan.slots[i].name, "' has shape ", ToString(shapes[i]),
                             ", expected ", ToString(out.slots[i].shape));
    }
  }
  return out;
}

}  // namespace telegrad
