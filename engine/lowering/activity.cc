#include "engine/lowering/activity.h"

#include <algorithm>

#include "engine/ir/scalar.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr size_t kMostConditions = 64;

bool IsFalse(UOp u) { return u.is_const() && IsBool(u.dtype()) && u.const_word() == 0; }

void AddComparisons(UOp root, std::vector<UOp>* out) {
  std::vector<UOp> stack{root};
  while (!stack.empty() && out->size() < kMostConditions) {
    const UOp u = stack.back();
    stack.pop_back();
    const bool both = u.is(Op::kAnd) && IsBool(u.dtype());
    if (both || (u.is(Op::kWhere) && IsFalse(u.src(2)))) {
      stack.push_back(u.src(0));
      stack.push_back(u.src(1));
    } else if (u.is(Op::kCmpLt)) {
      out->push_back(u);
    }
  }
}

std::vector<UOp> NeedsOfEffect(UOp store) {
  std::vector<UOp> out;
  while (store.is(Op::kEnd)) store = store.src(0);
  if (!store.is(Op::kStore)) return out;
  const UOp address = store.src(0), value = store.src(1);
  if (address.num_src() == 3) AddComparisons(address.src(2), &out);
  if (value.is(Op::kWhere) && value.src(2).is(Op::kLoad) && value.src(2).src(0) == address) {
    AddComparisons(value.src(0), &out);
  }
  return out;
}

std::vector<UOp> NeedsOfReduce(UOp reduce) {
  std::vector<UOp> out;
  const int64_t identity = ReduceIdentity(reduce.reduce_kind(), reduce.dtype());
  UOp u = reduce.src(0);
  while (true) {
    if (u.is(Op::kWhere) && u.src(2).is_const() && u.src(2).const_word() == identity) {
      AddComparisons(u.src(0), &out);
      u = u.src(1);
    } else if (u.is(Op::kCast) && identity == 0 && !IsBool(u.src(0).dtype())) {
      u = u.src(0);  // 0 is 0 in every type
    } else {
      break;
    }
  }
  if (u.is(Op::kLoad) && identity == 0 && u.src(0).num_src() == 3) {
    AddComparisons(u.src(0).src(2), &out);
  }
  if (IsBool(u.dtype()) && identity == 0) AddComparisons(u, &out);
  return out;
}

}  // namespace

std::vector<UOp> ConditionsIn(UOp condition) {
  std::vector<UOp> out;
  AddComparisons(condition, &out);
  return out;
}

bool ReadsNumbers(UOp sink) {
  const std::vector<uint32_t> order = PostOrder(sink);
  return std::ranges::any_of(order, [&](uint32_t id) {
    const UOp u = sink.graph()->at(id);
    return u.is(Op::kLoad) && IsInt(u.dtype()) && u.src(0).src(1).is_const();
  });
}

Activity::Activity(UOp sink, const Dependence& dependence)
    : graph_(*sink.graph()), dependence_(dependence) {
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = graph_.at(id);
    if (u.is(Op::kStore)) stored_.push_back(Memory(u.src(0)));
  }
}

std::vector<UOp> Activity::Needs(UOp closing) const {
  return closing.is(Op::kEnd) ? NeedsOfEffect(closing) : NeedsOfReduce(closing);
}

bool Activity::IsGiven(UOp root) const {
  if (dependence_.of[root.id()] != 0) return false;
  bool loads = false;
  for (uint32_t id : PostOrder(root)) {
    const UOp u = graph_.at(id);
    if (u.is(Op::kReduce) || u.is(Op::kAfter) || u.is(Op::kBuffer)) return false;
    if (u.is(Op::kParam) && std::ranges::find(stored_, u) != stored_.end()) return false;
    loads |= u.is(Op::kLoad);
  }
  return loads;
}

}  // namespace telegrad
