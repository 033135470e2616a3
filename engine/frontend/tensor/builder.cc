#include "engine/frontend/tensor/builder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/status.h"
#include "engine/types/limits.h"

namespace telegrad {

Tensor Builder::Make(Op op, DType dtype, std::initializer_list<Tensor> src,
                     std::span<const int64_t> arg) {
  std::vector<UOp> uops;
  uops.reserve(src.size());
  for (const Tensor& t : src) {
    if (!t.valid()) return Fail(InvalidArgument(Name(op), ": an operand is an empty tensor"));
    if (t.builder() != this) {
      return Fail(InvalidArgument(Name(op), ": an operand is of another builder"));
    }
    uops.push_back(t.uop());
  }
  return {this, graph_.Make(op, dtype, uops, arg)};
}

Tensor Builder::MakeSized(Op op, DType dtype, std::initializer_list<Tensor> src,
                          std::span<const Dim> sizes) {
  std::vector<UOp> uops;
  for (const Tensor& t : src) {
    if (!t.valid()) return Fail(InvalidArgument(Name(op), ": an operand is an empty tensor"));
    if (t.builder() != this) {
      return Fail(InvalidArgument(Name(op), ": an operand is of another builder"));
    }
    uops.push_back(t.uop());
  }
  std::vector<int64_t> words;
  for (const Dim& size : sizes) {
    if (size.is_static()) {
      if (size.size() < 0) {  // would name a source
        return Fail(InvalidArgument(Name(op), ": the size ", size.size(), " is negative"));
      }
      words.push_back(size.size());
      continue;
    }
    if (size.value().graph() != &graph_) {
      return Fail(InvalidArgument(Name(op), ": a symbolic size is of another builder"));
    }
    auto at = std::find(uops.begin() + static_cast<int64_t>(src.size()), uops.end(), size.value());
    words.push_back(-(at - uops.begin()) - 1);
    if (at == uops.end()) uops.push_back(size.value());
  }
  return {this, graph_.Make(op, dtype, uops, words)};
}

Tensor Builder::Fail(absl::Status status) { return {this, graph_.Fail(std::move(status))}; }

Tensor Builder::AddSlot(DType dtype, const Shape& shape, std::string_view name, SlotRole role,
                        Init init) {
  if (name.empty()) return Fail(InvalidArgument("param: a slot needs a name"));
  if (slot_names_.contains(std::string(name))) {
    return Fail(InvalidArgument("param: there is already a slot named '", name, "'"));
  }
  const auto slot = static_cast<int64_t>(slots_.size());
  const UOp param = graph_.Param(slot, dtype, shape);
  if (!param.valid()) return {this, param};
  slots_.push_back({std::string(name), dtype, shape, role, init, nullptr});
  slot_names_.emplace(name);
  current_.emplace_back();
  return {this, param};
}

Tensor Builder::Param(DType dtype, const Shape& shape, std::string_view name, SlotRole role) {
  return AddSlot(dtype, shape, name, role, Init{});
}

Tensor Builder::From(const HostTensor& values, std::string_view name) {
  const absl::StatusOr<int64_t> bytes = CheckedByteSize(values.dtype, values.shape);
  if (!bytes.ok()) return Fail(bytes.status());
  if (*bytes != static_cast<int64_t>(values.bytes.size())) {
    return Fail(InvalidArgument("from: '", name, "' is ", Name(values.dtype), " ",
                                ToString(values.shape), " of ", *bytes, " bytes, got ",
                                values.bytes.size()));
  }
  const Tensor t = Param(values.dtype, values.shape, name);
  if (t.valid()) slots_.back().content = std::make_shared<const HostTensor>(values);
  return t;
}

Tensor Builder::State(DType dtype, const Shape& shape, std::string_view name, Init init) {
  return AddSlot(dtype, shape, name, SlotRole::kState, init);
}

Tensor Builder::Trainable(DType dtype, const Shape& shape, std::string_view name, Init init) {
  const Tensor t = State(dtype, shape, name, init);
  if (t.valid()) trainable_.push_back(t);
  return t;
}

const Slot* Builder::FindSlot(const Tensor& tensor) const {
  if (!tensor.valid() || tensor.builder() != this || !tensor.uop().is(Op::kParam)) return nullptr;
  return &slots_[tensor.uop().slot()];
}

// A value that is a source, or was there before one, was folded away: the rules of operations know
// it. Where two compositions make the same node, that with the nearer sources stays, since from
// these the gradient flows on to the farther ones.
void Builder::SetDerivative(const Tensor& value, Derivative derivative) {
  if (!value.valid()) return;
  const uint32_t id = value.uop().id();
  const auto before = [&](const Tensor& s) { return s.valid() && s.uop().id() < id; };
  if (!std::ranges::all_of(derivative.sources, before)) return;
  const auto at = derivatives_.find(id);
  const auto less = [](const Tensor& a, const Tensor& b) { return a.uop().id() < b.uop().id(); };
  if (at == derivatives_.end() ||
      std::ranges::lexicographical_compare(at->second.sources, derivative.sources, less)) {
    derivatives_.insert_or_assign(id, std::move(derivative));
  }
}

const Builder::Derivative* Builder::FindDerivative(uint32_t id) const {
  const auto at = derivatives_.find(id);
  return at == derivatives_.end() ? nullptr : &at->second;
}

absl::StatusOr<Plan> Builder::Finish() {
  TG_RETURN_IF_ERROR(graph_.status());
  if (stores_.empty()) return InvalidArgument("finish: the graph stores nothing");
  const UOp sink = graph_.Make(Op::kSink, DType::kVoid, stores_);
  TG_RETURN_IF_ERROR(graph_.status());
  Plan plan{Freeze(sink), slots_, {}};
  const Graph& graph = *plan.graph.graph;
  std::vector<bool> used(variables_.size(), false);
  for (uint32_t id = 0; id < graph.size(); ++id) {
    if (graph.op(id) == Op::kVar && graph.src(id).empty()) used[graph.at(id).var_id()] = true;
  }
  std::ranges::copy_if(variables_, std::back_inserter(plan.variables),
                       [&](const PlanVariable& v) { return used[v.id]; });
  return plan;
}

}  // namespace telegrad
