#include "engine/execution/slot_uses.h"

namespace telegrad {

std::vector<SlotUse> CollectSlots(UOp sink) {
  std::vector<SlotUse> slots;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (!u.is(Op::kParam)) continue;
    const auto slot = static_cast<size_t>(u.slot());
    if (slots.size() <= slot) slots.resize(slot + 1);
    SlotUse& use = slots[slot];
    use.used = true;
    use.dtype = u.dtype();
    use.shape.assign(u.shape().begin(), u.shape().end());
    use.bytes = BytesOf(u.dtype(), NumElements(u.shape()));
  }
  return slots;
}

std::vector<SlotUse> CollectSlotUses(UOp sink) {
  std::vector<SlotUse> slots = CollectSlots(sink);
  const Graph& g = *sink.graph();
  // By node: the param that it is, or is a view of, or is after stores.
  NodeMap<uint32_t> param(g, UINT32_MAX);
  const auto use = [&](uint32_t id) { return &slots[static_cast<size_t>(g.at(id).slot())]; };
  for (const uint32_t id : PostOrder(sink)) {
    const Op op = g.op(id);
    if (op == Op::kParam) param[id] = id;
    const std::span<const uint32_t> src = g.src(id);
    if (Is(op, kMovement) || op == Op::kAfter) {
      param[id] = param[src[0]];
      continue;
    }
    for (size_t i = 0; i < src.size(); ++i) {
      if (param[src[i]] == UINT32_MAX) continue;
      (op == Op::kStore && i == 0 ? use(param[src[i]])->written : use(param[src[i]])->read) = true;
    }
  }
  return slots;
}

}  // namespace telegrad
