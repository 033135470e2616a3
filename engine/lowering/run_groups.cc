// The number of a workgroup is its row-major position in the ranges, so those in which the
// outermost range is below its end are the first ones.
#include "engine/lowering/run_groups.h"

#include <algorithm>
#include <vector>

#include "engine/base/checked.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

// Whether ValueOf knows what it is: an integer or a condition, computed of numbers of 64 bits.
bool IsNumber(UOp u) {
  if (!IsInt(u.dtype()) && !IsBool(u.dtype())) return false;
  switch (u.op()) {
    case Op::kParam:
      return u.dtype() == DType::kInt64;
    case Op::kConst:
    case Op::kIndex:
    case Op::kLoad:
    case Op::kCast:
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kNeg:
    case Op::kMax:
    case Op::kFloorDiv:
    case Op::kFloorMod:
    case Op::kCmpLt:
    case Op::kAnd:
    case Op::kWhere:
      return u.shape().empty();
    default:
      return false;
  }
}

// Whether the type of the node has this value. The program would go on with what it wraps to.
bool Fits(UOp u, int64_t value) {
  return ScalarFromInt(u.dtype(), value) == value && (value >= 0 || !IsUnsigned(u.dtype()));
}

int64_t FloorQuotient(int64_t x, int64_t y) { return x / y - (x % y < 0 ? 1 : 0); }  // y > 0

// `x`: of the sources. nullopt: it overflows, or is not defined here.
std::optional<int64_t> ValueOfNode(UOp u, const int64_t* x, std::span<const int64_t> numbers) {
  int64_t out = 0;
  switch (u.op()) {
    case Op::kConst:
      return u.const_word();
    case Op::kParam:
      return 0;
    case Op::kIndex:
      return x[1];
    case Op::kLoad:
      if (x[0] < 0 || x[0] >= std::ssize(numbers)) return std::nullopt;
      return numbers[static_cast<size_t>(x[0])];
    case Op::kCast:
      return x[0];
    case Op::kAdd:
      return CheckedAdd(x[0], x[1], &out) ? std::optional(out) : std::nullopt;
    case Op::kSub:
      return CheckedSub(x[0], x[1], &out) ? std::optional(out) : std::nullopt;
    case Op::kMul:
      return CheckedMul(x[0], x[1], &out) ? std::optional(out) : std::nullopt;
    case Op::kNeg:
      return CheckedSub(0, x[0], &out) ? std::optional(out) : std::nullopt;
    case Op::kMax:
      return std::max(x[0], x[1]);
    case Op::kFloorDiv:
      return x[1] > 0 ? std::optional(FloorQuotient(x[0], x[1])) : std::nullopt;
    case Op::kFloorMod:
      if (x[1] <= 0) return std::nullopt;
      return x[0] - x[1] * FloorQuotient(x[0], x[1]);
    case Op::kCmpLt:
      return x[0] < x[1] ? 1 : 0;
    case Op::kAnd:
      return x[0] & x[1];
    default:  // WHERE
      return x[0] != 0 ? x[1] : x[2];
  }
}

}  // namespace

std::optional<FrozenGraph> RunGroups(const Program& program) {
  UOp first;
  int64_t inside = 1;  // workgroups for each iteration of it
  for (const uint32_t id : program.order) {
    const UOp u = program.graph->at(id);
    if (!u.is(Op::kRange) || !IsType(u, AxisType::kGroup)) continue;
    if (first.valid()) {
      inside *= SizeOf(u);
    } else {
      first = u;
    }
  }
  if (!first.valid() || first.src(0).is_const()) return std::nullopt;
  const std::vector<uint32_t> order = PostOrder(first.src(0));
  if (!std::ranges::all_of(order, [&](uint32_t id) { return IsNumber(program.graph->at(id)); })) {
    return std::nullopt;
  }
  Graph g;
  const UOp end = CopyLive(first.src(0), &g);
  const UOp groups = g.Make(Op::kMul, {end, g.Const(end.dtype(), inside)});
  if (!groups.valid()) return std::nullopt;
  return Freeze(groups);
}

std::vector<int32_t> ArgumentsOf(const FrozenGraph& number) {
  std::vector<int32_t> out;
  for (const uint32_t id : PostOrder(number.root())) {
    const UOp u = number.graph->at(id);
    if (u.is(Op::kParam)) out.push_back(static_cast<int32_t>(u.slot()));
  }
  return out;
}

std::optional<int64_t> ValueOf(const FrozenGraph& number, std::span<const int64_t> numbers) {
  const Graph& g = *number.graph;
  NodeMap<int64_t> values(g);
  for (const uint32_t id : PostOrder(number.root())) {
    const UOp u = g.at(id);
    int64_t x[3] = {0, 0, 0};
    if (!IsNumber(u) || u.num_src() > 3) return std::nullopt;
    for (int i = 0; i < u.num_src(); ++i) x[i] = values[u.src(i)];
    const std::optional<int64_t> value = ValueOfNode(u, x, numbers);
    if (!value || !Fits(u, *value)) return std::nullopt;
    values[u] = *value;
  }
  return values[number.root()];
}

}  // namespace telegrad
