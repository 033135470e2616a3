// Parts of random graphs that are more than a value: the same graph on several devices,
// functions and loops with their bodies, variables and the sizes that depend on them.
#include <algorithm>

#include "tests/conformance/random_graph_maker.h"

namespace telegrad::testing {

UOp GraphMaker::Sharded() {
  const UOp x = PickNumber();
  if (!x.valid() || IsBool(x.dtype())) return {};
  const auto to = [&](UOp u, std::vector<int64_t> devices) {
    return g_.Make(Op::kCopy, {u}, devices);
  };
  UOp both = to(x, {0, 1});
  if (Chance(2)) both = g_.Make(Op::kMStack, {x, to(Like(x), {1})});
  const UOp c = g_.ConstWord(x.dtype(), Word(x.dtype()));
  if (Chance(2)) both = g_.Make(Op::kAdd, {both, c});
  bool exact = true;
  if (Chance(3)) {
    const int64_t kind[] = {Below(3)};
    exact = !IsNarrowFloat(x.dtype());
    both = g_.Make(Op::kAllReduce, {both}, kind);
  } else if (Chance(2) && !x.shape().empty()) {
    both = g_.Make(Op::kUnshard, {both}, std::vector<int64_t>{Below(x.shape().size())});
  }
  if (!both.valid()) return both;
  const UOp one = g_.Make(Op::kMSelect, DType::kVoid, {both}, {Below(2)});
  return Note(to(one, {0}), {.exact = exact});
}

// A few exact ops over ARGs that stand for `args`, from number `first` on; a TUPLE of as many
// values of the same types.
UOp GraphMaker::Body(const std::vector<UOp>& args, int first) {
  std::vector<UOp> values;
  for (size_t i = 0; i < args.size(); ++i) {
    std::vector<int64_t> arg{static_cast<int64_t>(i) + first, 0};
    arg.insert(arg.end(), args[i].shape().begin(), args[i].shape().end());
    values.push_back(g_.Make(Op::kArg, args[i].dtype(), std::span<const UOp>{}, arg));
  }
  std::vector<UOp> src = values;
  for (int64_t steps = 1 + Below(4); steps > 0; --steps) {
    UOp& to = values[Below(values.size())];
    const UOp from = src[Below(src.size())];
    UOp next = to;
    if (IsStorage(to.dtype()) || IsBool(to.dtype()) || !to.valid() || !from.valid()) continue;
    if (from.dtype() == to.dtype() && std::ranges::equal(from.shape(), to.shape())) {
      constexpr Op kOps[] = {Op::kAdd, Op::kSub, Op::kMax};
      next = g_.Make(OneOf(kOps), {to, from});
    } else if (first == 1 && Chance(2)) {  // the iteration
      const UOp i = g_.Make(Op::kArg, DType::kInt64, {}, {0, 0});
      next = g_.Make(Op::kAdd, {to, g_.Make(Op::kCast, to.dtype(), {i})});
    } else {
      next = g_.Make(Op::kNeg, {to});
    }
    if (next.valid()) to = next;
  }
  return g_.Make(Op::kTuple, DType::kVoid, values);
}

UOp GraphMaker::Call() {
  std::vector<UOp> src;
  for (int64_t n = 1 + Below(3); n > 0; --n) src.push_back(Chance(3) ? Input() : PickExact());
  if (std::ranges::any_of(src, [](UOp u) { return !u.valid(); })) return {};
  src.insert(src.begin(), Body(src, 0));
  const UOp call = g_.Make(Op::kCall, DType::kVoid, src);
  return g_.Make(Op::kGetTuple, DType::kVoid, {call}, {Below(src.size() - 1)});
}

UOp GraphMaker::Loop() {
  std::vector<UOp> src;
  for (int64_t n = 1 + Below(2); n > 0; --n) src.push_back(PickExact());
  if (std::ranges::any_of(src, [](UOp u) { return !u.valid(); })) return {};
  const UOp body = Body(src, 1);
  UOp trips = g_.Index(Below(5) - 1);
  if (Chance(2)) trips = Chance(2) ? DeviceScalar() : Variable(0, 4, 1, Below(5));
  src.insert(src.begin(), {body, trips});
  if (!trips.valid() || trips.vmax() > 8) return {};
  const UOp loop = g_.Make(Op::kLoop, DType::kVoid, src);
  return g_.Make(Op::kGetTuple, DType::kVoid, {loop}, {Below(src.size() - 2)});
}

UOp GraphMaker::Variable(int64_t min, int64_t max, int64_t multiple, int64_t value) {
  const auto id = static_cast<int64_t>(out_.variables.size());
  out_.variables.push_back({id, value});
  return g_.Make(Op::kVar, DType::kVoid, {}, {id, min, max, multiple});
}

UOp GraphMaker::DeviceScalar() {
  const UOp x = PickWhere(
      [&](UOp u) { return Of(u).exact && IsInt(u.dtype()) && NumElements(u.shape()) == 1; });
  const UOp scalar = x.valid() ? g_.Make(Op::kReshape, {x}, Shape{}) : NewSlot(DType::kInt32, {});
  const int64_t multiple = 1 + Below(2);
  return g_.Make(Op::kVar, DType::kVoid, {scalar}, {0, 0, 3 * multiple, multiple});
}

// A part of a size that the run chooses, computed with, and brought back to a fixed size.
UOp GraphMaker::Symbolic() {
  const UOp x = PickNumber();
  if (!x.valid() || x.shape().empty() || x.shape()[0] < 2) return {};
  const int64_t n = x.shape()[0];
  const UOp size = Variable(1, n, 1, 1 + Below(n));
  std::vector<int64_t> part{0, -2};
  for (const int64_t d : x.shape().subspan(1)) part.insert(part.end(), {0, d});
  UOp y = g_.Make(Op::kShrink, DType::kVoid, std::vector<UOp>{x, size}, part);
  if (IsInt(x.dtype()) && x.shape().size() == 1) {
    const UOp iota =
        g_.Make(Op::kIota, DType::kInt64, std::vector<UOp>{size}, std::vector<int64_t>{-1});
    y = g_.Make(Op::kXor, {y, Cast(iota, x.dtype())});
  } else {
    y = g_.Make(Op::kMax, {y, y});
  }
  if (!y.valid()) return y;
  if (Chance(2)) {
    const int64_t max[] = {static_cast<int64_t>(ReduceKind::kMax), 0};
    return IsBool(y.dtype()) ? UOp() : g_.Make(Op::kReduce, {y}, max);
  }
  std::vector<int64_t> whole{0, n};
  for (const int64_t d : x.shape().subspan(1)) whole.insert(whole.end(), {0, d});
  return g_.Make(Op::kPad, {y}, whole);
}

}  // namespace telegrad::testing
