#include "engine/frontend/builder.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

// The param that a target of a Store is a one-to-one view of, or an invalid node.
UOp ViewedParam(UOp view) {
  while (true) {
    switch (view.op()) {
      case Op::kParam:
        return view;
      case Op::kReshape:
      case Op::kPermute:
      case Op::kFlip:
      case Op::kShrink:
        view = view.src(0);
        break;
      default:
        return {};
    }
  }
}

}  // namespace

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
  if (std::ranges::find(slots_, name, &Slot::name) != slots_.end()) {
    return Fail(InvalidArgument("param: there is already a slot named '", name, "'"));
  }
  const auto slot = static_cast<int64_t>(slots_.size());
  const UOp param = graph_.Param(slot, dtype, shape);
  if (!param.valid()) return {this, param};
  slots_.push_back({std::string(name), dtype, shape, role, init});
  stored_.push_back(false);
  return {this, param};
}

Tensor Builder::Param(DType dtype, const Shape& shape, std::string_view name, SlotRole role) {
  return AddSlot(dtype, shape, name, role, Init{});
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
  return &slots_[tensor.uop().arg(0)];
}

int64_t Builder::StoredSlot(const Tensor& target, const Tensor& value) {
  const auto fail = [&](absl::Status status) {
    Fail(std::move(status));
    return int64_t{-1};
  };
  if (!target.valid() || !value.valid()) {
    return fail(InvalidArgument("store: the target or the value is an empty tensor"));
  }
  const UOp param = ViewedParam(target.uop());
  if (!param.valid()) {
    return fail(InvalidArgument("store: the target (", Name(target.uop().op()),
                                ") is not a slot or a one-to-one view of one"));
  }
  const int64_t slot = param.arg(0);
  if (slots_[slot].role == SlotRole::kInput) {
    return fail(InvalidArgument("store: slot '", slots_[slot].name, "' is an input"));
  }
  if (value.dtype() != target.dtype()) {
    return fail(InvalidArgument("store: the value has element type ", Name(value.dtype()),
                                ", slot '", slots_[slot].name, "' has ", Name(target.dtype())));
  }
  return slot;
}

UOp Builder::MakeStore(const Tensor& target, const Tensor& value) {
  Tensor full = value;
  if (value.rank() != 0) full = value.Expand(target.dims());
  return Make(Op::kStore, DType::kVoid, {target, full}).uop();
}

void Builder::Store(const Tensor& target, const Tensor& value) {
  const int64_t slot = StoredSlot(target, value);
  if (slot < 0) return;
  if (stored_[slot]) {
    Fail(InvalidArgument("store: slot '", slots_[slot].name, "' is stored to already"));
    return;
  }
  const UOp store = MakeStore(target, value);
  if (!store.valid()) return;
  stored_[slot] = true;
  stores_.push_back(store);
}

void Builder::Update(const Tensor& slot, const Tensor& value) {
  const int64_t number = StoredSlot(slot, value);
  if (number < 0) return;
  const auto before = updates_.find(number);
  if (FindSlot(slot) == nullptr) {
    Fail(InvalidArgument("update: the target is a part of slot '", slots_[number].name, "'"));
    return;
  }
  if (before == updates_.end()) {
    Store(slot, value);
    if (stored_[number]) updates_[number] = stores_.size() - 1;
    return;
  }
  const UOp store = MakeStore(slot, value);
  if (store.valid()) stores_[before->second] = store;
}

Tensor Builder::Updated(const Tensor& slot) const {
  if (FindSlot(slot) == nullptr) return slot;
  const auto found = updates_.find(slot.uop().arg(0));
  return found == updates_.end() ? slot : Tensor(slot.builder(), stores_[found->second].src(1));
}

int Builder::Output(const Tensor& value, std::string_view name) {
  if (!value.valid()) {
    Fail(InvalidArgument("output '", name, "': the value is an empty tensor"));
    return -1;
  }
  const Shape shape(value.shape().begin(), value.shape().end());
  const Tensor target = Param(value.dtype(), shape, name, SlotRole::kOutput);
  if (!target.valid()) return -1;
  Store(target, value);
  return static_cast<int>(target.uop().arg(0));
}

absl::StatusOr<Plan> Builder::Finish() {
  TG_RETURN_IF_ERROR(graph_.status());
  if (stores_.empty()) return InvalidArgument("finish: the graph stores nothing");
  const UOp sink = graph_.Make(Op::kSink, DType::kVoid, stores_);
  TG_RETURN_IF_ERROR(graph_.status());
  return Plan{Freeze(sink), slots_, variables_};
}

}  // namespace telegrad
