// Effects of a plan. Every slot has a current value: its PARAM, or an AFTER of the STOREs to it so
// far. A STORE goes to a view of the current value, which puts it behind the STORE before it, and
// makes the next one.
#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/views.h"

namespace telegrad {
namespace {

// What a target of a store is a view of, a PARAM or an AFTER of one, and how many movements above
// it the view begins to pad, which STORE does not know; or what is in the way.
struct Target {
  UOp slot;
  std::vector<UOp> views;  // from the target down
  size_t padded = 0;       // how many of them come down to the lowest PAD, it included
};

absl::StatusOr<Target> TargetOf(UOp view) {
  Target out;
  for (UOp u = view;; u = u.src(0)) {
    switch (u.op()) {
      case Op::kParam:
      case Op::kAfter:
        out.slot = u;
        return out;
      case Op::kReshape:
      case Op::kPermute:
      case Op::kFlip:
      case Op::kShrink:
        out.views.push_back(u);
        break;
      case Op::kPad:
        out.views.push_back(u);
        out.padded = out.views.size();
        break;
      default:
        return InvalidArgument("store: the target (", Name(u.op()),
                               ") is not a slot or a one-to-one view of one");
    }
  }
}

}  // namespace

UOp Builder::StoreInto(const Tensor& target, const Tensor& value) {
  if (!target.valid() || !value.valid()) {
    return graph_.Fail(InvalidArgument("store: the target or the value is an empty tensor"));
  }
  if (target.builder() != this || value.builder() != this) {
    return graph_.Fail(InvalidArgument("store: the target or the value is of another builder"));
  }
  const absl::StatusOr<Target> to = TargetOf(target.uop());
  if (!to.ok()) return graph_.Fail(to.status());
  const UOp param = to->slot.is(Op::kAfter) ? to->slot.src(0) : to->slot;
  const Slot& slot = slots_[param.slot()];
  if (slot.role == SlotRole::kInput) {
    return graph_.Fail(InvalidArgument("store: slot '", slot.name, "' is an input"));
  }
  if (value.dtype() != target.dtype()) {
    return graph_.Fail(InvalidArgument("store: the value has element type ", Name(value.dtype()),
                                       ", slot '", slot.name, "' has ", Name(target.dtype())));
  }
  // The views again, of the slot's current value.
  Tensor& current = current_[param.slot()];
  if (!current.valid()) current = {this, param};
  std::vector<Tensor> views = {current};  // from the slot up
  for (size_t i = to->views.size(); i-- > 0;) {
    std::vector<UOp> src = {views.back().uop()};
    const UOp view = to->views[i];
    for (int s = 1; s < view.num_src(); ++s) src.push_back(view.src(s));
    const std::vector<int64_t> arg(view.arg().begin(), view.arg().end());
    views.emplace_back(this, graph_.Make(view.op(), DType::kVoid, src, arg));
    if (!views.back().valid()) return {};
  }
  Tensor full = value.rank() == 0 && to->padded == 0 ? value : value.Expand(target.dims());
  const Tensor& written = views[to->views.size() - to->padded];
  if (to->padded > 0) full = ReplaceView("store", views.back(), written, full);
  const Tensor store = Make(Op::kStore, DType::kVoid, {written, full});
  if (!store.valid()) return {};
  stores_.push_back(store.uop());
  std::vector<UOp> effects = {param};  // all stores so far
  if (current.uop().is(Op::kAfter)) {
    for (int i = 1; i < current.uop().num_src(); ++i) effects.push_back(current.uop().src(i));
  }
  effects.push_back(store.uop());
  current = {this, graph_.Make(Op::kAfter, DType::kVoid, effects)};
  return param;
}

void Builder::Store(const Tensor& target, const Tensor& value) {
  if (target.valid() && target.builder() == this) {
    const absl::StatusOr<Target> to = TargetOf(target.uop());
    const UOp param = !to.ok() ? UOp() : to->slot.is(Op::kAfter) ? to->slot.src(0) : to->slot;
    if (param.valid() && current_[param.slot()].valid()) {
      Fail(InvalidArgument("store: slot '", slots_[param.slot()].name,
                           "' is stored to already; Assign stores to it again"));
      return;
    }
  }
  StoreInto(target, value);
}

Tensor Builder::Assign(const Tensor& view, const Tensor& value) {
  const UOp param = StoreInto(view, value);
  return param.valid() ? current_[param.slot()] : Tensor(this, param);
}

void Builder::Update(const Tensor& slot, const Tensor& value) {
  if (FindSlot(slot) == nullptr) {
    Fail(InvalidArgument("update: the target is not a whole slot"));
    return;
  }
  const int64_t number = slot.uop().slot();
  const auto before = updates_.find(number);
  if (before == updates_.end()) {
    Store(slot, value);
    if (status().ok()) updates_[number] = stores_.size() - 1;
    return;
  }
  const size_t place = before->second;
  const UOp now = current_[number].uop();
  if (now.num_src() != 2 || now.src(1) != stores_[place]) {
    Fail(InvalidArgument("update: slot '", slots_[number].name, "' is assigned to since"));
    return;
  }
  current_[number] = Tensor();
  if (!StoreInto(slot, value).valid()) return;
  stores_[place] = stores_.back();
  stores_.pop_back();
}

Tensor Builder::Updated(const Tensor& slot) const {
  if (FindSlot(slot) == nullptr) return slot;
  const auto found = updates_.find(slot.uop().slot());
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
  Tensor there = target;
  for (int64_t i = 0; i < value.rank(); ++i) there = there.Narrow(i, 0, value.dims()[i]);
  Store(there, value);
  return static_cast<int>(target.uop().slot());
}

}  // namespace telegrad
