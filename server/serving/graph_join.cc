#include "server/serving/graph_join.h"

#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/ir/content_hash.h"
#include "engine/types/limits.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

// The slot that a STORE writes as a whole; -1 where it writes a part of one.
int64_t WrittenSlot(UOp store) {
  UOp target = store.src(0);
  while (target.is(Op::kReshape)) target = target.src(0);
  return target.is(Op::kParam) ? target.slot() : -1;
}

}  // namespace

UOp GraphJoin::AddSlot(ImportedSlot slot, std::string_view content) {
  const auto number = static_cast<int64_t>(model_.slots.size());
  slot.bytes = BytesOf(slot.dtype, NumElements(slot.shape));
  const UOp param = graph_.Param(number, slot.dtype, slot.shape);
  model_.slots.push_back(std::move(slot));
  model_.contents.push_back(content);
  return param;
}

UOp GraphJoin::Input(const std::string& name, DType dtype, const Shape& shape) {
  return AddSlot({.role = ImportedSlot::Role::kInput,
                  .name = name,
                  .model_names = {name},
                  .dtype = dtype,
                  .shape = shape},
                 "");
}

UOp GraphJoin::Reshape(UOp value, const Shape& shape) {
  const Shape before(value.shape().begin(), value.shape().end());
  return before == shape ? value : graph_.Make(Op::kReshape, {value}, shape);
}

void GraphJoin::Output(const std::string& name, UOp value) {
  const UOp param = AddSlot({.role = ImportedSlot::Role::kOutput,
                             .name = name,
                             .model_names = {name},
                             .dtype = value.dtype(),
                             .shape = Shape(value.shape().begin(), value.shape().end())},
                            "");
  stores_.push_back(graph_.Make(Op::kStore, {param, value}));
}

// The copying of one part.
struct GraphJoin::Copy {
  GraphJoin& join;
  const ImportedModel& part;
  const Values& inputs;
  std::vector<UOp> slots;   // what stands for a slot; of an output, its value once it is known
  std::vector<UOp> copied;  // by node; invalid for the slot of an output and views of it
  std::map<int64_t, int64_t> variables = {};

  absl::StatusOr<UOp> Bound(const ImportedSlot& slot) const {
    for (const std::string& name : slot.model_names) {
      const auto it = inputs.find(name);
      if (it == inputs.end()) continue;
      const UOp value = it->second;
      const Shape shape(value.shape().begin(), value.shape().end());
      if (value.dtype() == slot.dtype && shape == slot.shape && !value.symbolic()) return value;
      return InvalidArgument("input '", name, "' gets ", Name(value.dtype()), " of shape ",
                             ToString(value.shape()), ", expected ", Name(slot.dtype), " of shape ",
                             ToString(slot.shape));
    }
    return InvalidArgument("input '", slot.name, "' gets nothing");
  }

  absl::Status Store(UOp store) {
    const int64_t slot = WrittenSlot(store);
    const UOp value = copied[store.src(1).id()];
    const bool output =
        slot >= 0 && part.slots[static_cast<size_t>(slot)].role == ImportedSlot::Role::kOutput;
    if (!output || !value.valid() || slots[static_cast<size_t>(slot)].valid()) {
      return Unimplemented("its graph writes to more than whole outputs, each once");
    }
    const Shape& shape = part.slots[static_cast<size_t>(slot)].shape;
    UOp whole = value;
    if (Shape(value.shape().begin(), value.shape().end()) != shape) {
      if (value.shape().empty()) {
        whole = join.graph_.Make(Op::kReshape, {value}, Shape(shape.size(), 1));
        whole = join.graph_.Make(Op::kExpand, {whole}, shape);
      } else {
        whole = join.graph_.Make(Op::kReshape, {value}, shape);
      }
    }
    slots[static_cast<size_t>(slot)] = whole;
    return absl::OkStatus();
  }

  absl::StatusOr<UOp> Node(UOp u) {
    if (u.is(Op::kParam)) return slots[static_cast<size_t>(u.slot())];
    std::vector<UOp> src;
    bool of_output = false;
    for (const uint32_t id : u.src_ids()) {
      src.push_back(copied[id]);
      of_output |= !src.back().valid();
    }
    if (of_output && u.is(Op::kReshape)) return UOp();  // perhaps the target of a store
    if (of_output) return Unimplemented("its graph reads what it writes");
    if (!u.is(Op::kVar)) return join.graph_.Make(u.op(), u.dtype(), src, u.arg());
    // Numbers of variables are those of one graph.
    std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    const auto [it, fresh] = variables.try_emplace(arg[0], join.variables_);
    if (fresh) ++join.variables_;
    arg[0] = it->second;
    return join.graph_.Make(u.op(), u.dtype(), src, arg);
  }

  absl::Status Run() {
    const UOp root = part.graph.graph.root();
    copied.resize(root.id() + 1);
    for (const uint32_t id : PostOrder(root)) {
      TG_RETURN_IF_ERROR(join.budget_.SpendNodes());
      const UOp u(root.graph(), id);
      if (u.is(Op::kSink)) continue;
      if (u.is(Op::kStore)) {
        TG_RETURN_IF_ERROR(Store(u));
        continue;
      }
      if (u.is(Op::kParam) && static_cast<size_t>(u.slot()) >= slots.size()) {
        return Internal("the graph has a slot ", u.slot(), ", described are ", slots.size());
      }
      TG_ASSIGN_OR_RETURN(copied[id], Node(u));
      TG_RETURN_IF_ERROR(join.graph_.status());
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<GraphJoin::Values> GraphJoin::Add(const ImportedModel& part, const Values& inputs) {
  if (model_.slots.size() + part.slots.size() > static_cast<size_t>(kMaxParams)) {
    return ResourceExhausted("the parts have more than ", kMaxParams, " inputs and weights");
  }
  Copy copy{.join = *this, .part = part, .inputs = inputs, .slots = {}, .copied = {}};
  for (size_t i = 0; i < part.slots.size(); ++i) {
    const ImportedSlot& slot = part.slots[i];
    UOp& stands = copy.slots.emplace_back();
    if (slot.role == ImportedSlot::Role::kInput) {
      TG_ASSIGN_OR_RETURN(stands, copy.Bound(slot));
    } else if (slot.role == ImportedSlot::Role::kWeight) {
      stands = AddSlot(slot, part.contents[i]);
    }
  }
  TG_RETURN_IF_ERROR(copy.Run());
  kept_.push_back(part.keep);
  Values out;
  for (size_t i = 0; i < part.slots.size(); ++i) {
    if (part.slots[i].role != ImportedSlot::Role::kOutput || !copy.slots[i].valid()) continue;
    for (const std::string& name : part.slots[i].model_names) out[name] = copy.slots[i];
  }
  return out;
}

absl::StatusOr<ImportedModel> GraphJoin::Finish() {
  const UOp root = graph_.Make(Op::kSink, DType::kVoid, stores_);
  TG_RETURN_IF_ERROR(graph_.status());
  const std::string bytes = GraphBytes(root);
  TG_ASSIGN_OR_RETURN(model_.graph.graph, GraphFromBytes(bytes, &budget_));
  model_.graph.hash = ContentHash(model_.graph.graph.root());
  model_.graph_bytes = static_cast<int64_t>(bytes.size());
  model_.slot_bytes = static_cast<int64_t>(model_.slots.size() * sizeof(ImportedSlot));
  model_.keep = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(kept_));
  return std::move(model_);
}

}  // namespace telegrad
