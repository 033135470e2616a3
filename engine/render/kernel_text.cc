#include "engine/render/kernel_text.h"

#include "engine/ir/verify.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxLanes = 1024;

}  // namespace

absl::Status KernelText::CheckHeader() const {
  if (!IsIdentifier(program_.name)) return Broken("the name is not an identifier");
  for (uint32_t id : program_.order) {
    if (id >= program_.graph->size()) return Broken("node ", id, " does not exist");
  }
  return absl::OkStatus();
}

absl::Status KernelText::PrintNodes() {
  for (uint32_t id : program_.order) {
    const UOp u = program_.graph->at(id);
    const bool repeats = u.is(Op::kRange) || Is(u.op(), kEffect);
    if (!repeats && (Emitted(u) || HasAddress(u))) continue;
    TG_RETURN_IF_ERROR(Print(u));
  }
  if (!open_.empty()) return Broken("range ", open_.back().id(), " is not closed");
  return absl::OkStatus();
}

absl::StatusOr<int64_t> KernelText::Lanes(UOp u) const {
  const ShapeView shape = u.shape();
  if (shape.empty()) return 1;
  if (shape.size() == 1 && shape[0] >= 1 && shape[0] <= kMaxLanes) return shape[0];
  return Broken("node ", u.id(), " of shape ", ToString(shape),
                " is neither a scalar nor a vector");
}

absl::StatusOr<std::string> KernelText::ValueOf(UOp u, int64_t lanes) {
  if (u.is_const()) return Literal(u.dtype(), u.const_word(), lanes);
  TG_ASSIGN_OR_RETURN(const int64_t own, Lanes(u));
  if (!Emitted(u)) {
    return Broken("node ", u.id(), " (", telegrad::Name(u.op()), ") is used before it is computed");
  }
  if (own == lanes) return values_[u];
  if (own != 1) return Broken("node ", u.id(), " has ", own, " lanes, expected ", lanes);
  return Splat(u.dtype(), values_[u], lanes);
}

absl::StatusOr<std::vector<std::string>> KernelText::Sources(UOp u, int64_t lanes) {
  std::vector<std::string> values(u.num_src());
  for (int i = 0; i < u.num_src(); ++i) {
    TG_ASSIGN_OR_RETURN(values[i], ValueOf(u.src(i), lanes));
  }
  return values;
}

// RESHAPE and EXPAND only change how many lanes show the value; AFTER only orders. An AFTER of a
// buffer has no value: INDEX looks through it.
absl::Status KernelText::Same(UOp u) {
  const UOp behind = BehindOrder(u);
  if (behind.is(Op::kParam) || behind.is(Op::kBuffer)) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  TG_ASSIGN_OR_RETURN(values_[u], ValueOf(u.src(0), lanes));
  return absl::OkStatus();
}

absl::StatusOr<UOp> KernelText::TakeInnermost(UOp u) {
  const UOp opened = u.src(0);
  if (u.num_src() != 1 || open_.empty() || open_.back() != opened) {
    return Broken("node ", u.id(), " does not close the innermost range");
  }
  open_.pop_back();
  return opened;
}

absl::Status KernelText::ReadAccess(UOp u, Access* at) {
  at->dtype = u.dtype();
  TG_ASSIGN_OR_RETURN(at->lanes, Lanes(u));
  if (u.num_src() < 3 || u.src(2).bounds() == Interval{1, 1}) return absl::OkStatus();
  const UOp gate = u.src(2);
  TG_ASSIGN_OR_RETURN(const int64_t gates, Lanes(gate));
  at->lane_gate = gates > 1;
  if (at->lane_gate && gates != at->lanes) return Broken("node ", u.id(), " has too wide a gate");
  TG_ASSIGN_OR_RETURN(at->gate, ValueOf(gate, gates));
  return absl::OkStatus();
}

UOp KernelText::BehindOrder(UOp u) {
  while (u.is(Op::kAfter)) u = u.src(0);
  return u;
}

}  // namespace telegrad
