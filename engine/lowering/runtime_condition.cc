// The comparison is read as a sum of nodes times coefficients. One node depends on the range; the
// others are numbers of the run, loops around, or free: then their bounds say what they add.
#include "engine/lowering/runtime_condition.h"

#include "engine/lowering/position_form.h"

namespace telegrad {

int64_t RunCondition::Least() const {
  int64_t sum = constant;
  for (const auto& [u, c] : free) sum += c * (c > 0 ? u.vmin() : u.vmax());
  return sum;
}

int64_t RunCondition::Most() const {
  int64_t sum = constant;
  for (const auto& [u, c] : free) sum += c * (c > 0 ? u.vmax() : u.vmin());
  return sum;
}

std::optional<TileBegin> TileBeginOf(UOp u, UOp range) {
  if (!u.is(Op::kMax)) return std::nullopt;
  const UOp begin = u.src(0), last = u.src(1);
  if (!last.is_const() || !begin.is(Op::kMul) || begin.src(0) != range) return std::nullopt;
  if (!begin.src(1).is_const() || begin.src(1).const_word() >= 0) return std::nullopt;
  return TileBegin{begin.src(1).const_word(), last.const_word()};
}

UOp RunConditions::Times(UOp u, int64_t by) const {
  return b_.Make(Op::kMul, {AsIndex(g_, u), g_.Index(by)});
}
UOp RunConditions::Least(UOp x, UOp y) const {
  return Times(b_.Make(Op::kMax, {Times(x, -1), Times(y, -1)}), -1);
}
UOp RunConditions::RoundUp(UOp x, int64_t by) const {
  if (by == 1) return x;
  return b_.Make(Op::kFloorDiv, {b_.Make(Op::kAdd, {x, g_.Index(by - 1)}), g_.Index(by)});
}

bool RunConditions::IsLoopAround(UOp u, RangeSet around) const {
  return u.is(Op::kRange) && Has(around, d_.IndexOf(u)) &&
         (IsType(u, AxisType::kLoop) || IsType(u, AxisType::kReduce) ||
          IsType(u, AxisType::kThread) || IsType(u, AxisType::kGroup));
}

std::optional<RunCondition> RunConditions::Read(UOp condition, UOp range, RangeSet around) const {
  PositionForm form;  // < 0
  if (!form.Add(condition.src(0), 1) || !form.Add(condition.src(1), -1)) return std::nullopt;
  RunCondition out;
  out.constant = form.constant;
  bool given = false;
  UOp rest = g_.Index(0);
  for (const auto& [id, c] : form.terms) {
    const UOp u = g_.at(id);
    const bool remainder = u.is(Op::kFloorMod) && u.src(0) == range;
    if (d_.Depends(u, range) && !remainder) {
      if (out.main.valid()) return std::nullopt;
      out.main = u;
      out.factor = c;
    } else if (activity_.IsGiven(u)) {
      given = true;
      rest = b_.Make(Op::kAdd, {rest, Times(u, c)});
    } else if (IsLoopAround(u, around)) {
      out.around = true;
      rest = b_.Make(Op::kAdd, {rest, Times(u, c)});
    } else {
      out.free.emplace_back(u, c);
    }
  }
  if (!out.main.valid() || !given) return std::nullopt;
  out.rest = rest;
  return out;
}

UOp RunConditions::Limit(const RunCondition& condition, int64_t constant) const {
  return Times(b_.Make(Op::kAdd, {condition.rest, g_.Index(constant)}), -1);
}

UOp RunConditions::End(const RunCondition& condition, UOp range, int64_t constant) const {
  return EndBelow(condition.main, condition.factor, range, Limit(condition, constant));
}

// How many iterations there are in which factor * node < limit. The node is the range itself, a
// quotient of it, or the beginning of a tile.
UOp RunConditions::EndBelow(UOp node, int64_t factor, UOp range, UOp limit) const {
  if (node.is(Op::kMax)) {
    const std::optional<TileBegin> tile = TileBeginOf(node, range);
    if (factor >= 0 || !tile) return {};
    limit = RoundUp(limit, -factor);
    const UOp all = b_.Make(Op::kCmpLt, {g_.Index(-tile->last), limit});
    return b_.Make(Op::kWhere, {all, g_.Index(SizeOf(range)), RoundUp(limit, -tile->step)});
  }
  if (factor <= 0) return {};
  limit = RoundUp(limit, factor);
  if (node == range) return limit;
  const bool quotient = node.is(Op::kFloorDiv) && node.src(0) == range && node.src(1).is_const() &&
                        node.src(1).const_word() > 0;
  return quotient ? Times(limit, node.src(1).const_word()) : UOp();
}

}  // namespace telegrad
