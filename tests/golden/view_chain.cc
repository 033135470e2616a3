// The walk holds one position, a number for each axis, and maps it from the result of a movement op
// to its source, straight from the op's meaning. Element n of the PARAM is taken to be n + 1, and
// what a PAD adds is 0, so a wrong index and a wrong gate both show as a wrong value.
#include "tests/golden/view_chain.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_join.h"
#include "engine/base/strings.h"

namespace telegrad::test {
namespace {

// The parts of SINK(END(STORE(...), ranges...)).
struct Kernel {
  UOp store;
  std::vector<UOp> loops, folded;
  UOp element;  // what is stored, or what is summed up
};

Kernel PartsOf(const FrozenGraph& graph) {
  Kernel k;
  const UOp end = graph.root().src(0);
  k.store = end.is(Op::kEnd) ? end.src(0) : end;
  for (int i = 1; end.is(Op::kEnd) && i < end.num_src(); ++i) k.loops.push_back(end.src(i));
  k.element = k.store.src(1);
  if (k.element.is(Op::kReduce)) {
    for (int i = 1; i < k.element.num_src(); ++i) k.folded.push_back(k.element.src(i));
    k.element = k.element.src(0);
  }
  return k;
}

// --- text ---

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel) {}

  std::string Print() {
    std::vector<std::string> loops;
    for (const auto* ranges : {&kernel_.loops, &kernel_.folded}) {
      for (UOp r : *ranges) loops.push_back(StrCat(NameOf(r), "<", r.src(0).const_word()));
    }
    return StrCat(absl::StrJoin(loops, " "), ": ", Access("out", kernel_.store.src(0)),
                  kernel_.folded.empty() ? " = " : " += ", Expression(kernel_.element, 0));
  }

 private:
  std::string NameOf(UOp range) const {
    const auto at = std::ranges::find(kernel_.loops, range);
    if (at != kernel_.loops.end()) return StrCat("i", at - kernel_.loops.begin());
    return StrCat("k", std::ranges::find(kernel_.folded, range) - kernel_.folded.begin());
  }

  std::string Access(std::string_view name, UOp index) {
    const std::string gate =
        index.num_src() == 3 ? StrCat(" if ", Expression(index.src(2), 0)) : std::string();
    return StrCat(name, "[", Expression(index.src(1), 0), gate, "]");
  }

  // Parenthesized where it binds less than `outer`.
  std::string Expression(UOp u, int outer) {
    struct Infix {
      Op op;
      std::string_view text;
      int binds;
    };
    static constexpr Infix kInfix[] = {
        {Op::kOr, " | ", 1},     {Op::kXor, " ^ ", 1},    {Op::kAnd, " & ", 2},
        {Op::kCmpLt, " < ", 3},  {Op::kCmpEq, " == ", 3}, {Op::kCmpNe, " != ", 3},
        {Op::kAdd, " + ", 4},    {Op::kSub, " - ", 4},    {Op::kMul, "*", 5},
        {Op::kFloorDiv, "/", 5}, {Op::kFloorMod, "%", 5}};
    if (u.is_const()) return StrCat(u.const_word());
    if (u.is(Op::kRange)) return NameOf(u);
    if (u.is(Op::kLoad)) return Access("in", u.src(0));
    if (u.is(Op::kWhere)) {
      return StrCat("where(", Expression(u.src(0), 0), ", ", Expression(u.src(1), 0), ", ",
                    Expression(u.src(2), 0), ")");
    }
    const auto it = std::ranges::find(kInfix, u.op(), &Infix::op);
    if (it == std::end(kInfix)) return StrCat("?", Name(u.op()));
    std::string text;
    if (u.is(Op::kAdd) && u.src(1).is_const() && u.src(1).const_word() < 0) {
      text = StrCat(Expression(u.src(0), it->binds), " - ", -u.src(1).const_word());
    } else {
      text = StrCat(Expression(u.src(0), it->binds), it->text, Expression(u.src(1), it->binds + 1));
    }
    return it->binds < outer ? StrCat("(", text, ")") : text;
  }

  const Kernel& kernel_;
};

// --- numbers ---

using Position = std::vector<int64_t>;

int64_t Flat(ShapeView shape, const Position& at) {
  int64_t flat = 0;
  for (size_t i = 0; i < shape.size(); ++i) flat = flat * shape[i] + at[i];
  return flat;
}

Position Unflat(ShapeView shape, int64_t flat) {
  Position at(shape.size());
  for (size_t i = shape.size(); i-- > 0; flat /= shape[i]) at[i] = flat % shape[i];
  return at;
}

// The element of the PARAM below `u` that `at` is, plus 1; 0 in a PAD's margin.
int64_t Walk(UOp u, Position at) {
  for (; !u.is(Op::kParam); u = u.src(0)) {
    const ShapeView from = u.src(0).shape();
    const Position here = at;
    switch (u.op()) {
      case Op::kReshape:
        at = Unflat(from, Flat(u.shape(), here));
        break;
      case Op::kExpand:
        for (size_t i = 0; i < at.size(); ++i) at[i] = from[i] == 1 ? 0 : here[i];
        break;
      case Op::kPermute:
        for (size_t i = 0; i < at.size(); ++i) at[u.axes()[i]] = here[i];
        break;
      case Op::kFlip:
        for (int64_t axis : u.arg()) at[axis] = from[axis] - 1 - here[axis];
        break;
      case Op::kPad:
      case Op::kShrink:
        for (size_t i = 0; i < at.size(); ++i) {
          const int64_t first = u.pair_offset(i);
          at[i] = u.is(Op::kPad) ? here[i] - first : here[i] + first;
          if (at[i] < 0 || at[i] >= from[i]) return 0;
        }
        break;
      default:
        return -1;  // no view
    }
  }
  return Flat(u.shape(), at) + 1;
}

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// Values of all nodes in `order` at a point: the ranges' are set. A load gives its index plus 1.
// nullopt for an op that no index has, or an access outside of its buffer.
std::optional<int64_t> Evaluate(const Graph& g, const std::vector<uint32_t>& order,
                                std::vector<int64_t>* values) {
  std::vector<int64_t>& v = *values;
  for (uint32_t id : order) {
    const UOp u = g.at(id);
    const auto x = [&](int i) { return v[u.src(i).id()]; };
    switch (u.op()) {
      case Op::kConst:
        v[id] = u.const_word();
        break;
      case Op::kRange:
      case Op::kParam:
        break;
      case Op::kAdd:
        v[id] = x(0) + x(1);
        break;
      case Op::kSub:
        v[id] = x(0) - x(1);
        break;
      case Op::kMul:
        v[id] = x(0) * x(1);
        break;
      case Op::kFloorDiv:
        v[id] = FloorDiv(x(0), x(1));
        break;
      case Op::kFloorMod:
        v[id] = x(0) - x(1) * FloorDiv(x(0), x(1));
        break;
      case Op::kCmpLt:
        v[id] = x(0) < x(1);
        break;
      case Op::kCmpEq:
        v[id] = x(0) == x(1);
        break;
      case Op::kCmpNe:
        v[id] = x(0) != x(1);
        break;
      case Op::kAnd:
        v[id] = x(0) & x(1);
        break;
      case Op::kOr:
        v[id] = x(0) | x(1);
        break;
      case Op::kXor:
        v[id] = x(0) ^ x(1);
        break;
      case Op::kWhere:
        v[id] = x(0) != 0 ? x(1) : x(2);
        break;
      case Op::kIndex:
        v[id] = u.num_src() == 3 && x(2) == 0 ? 0 : x(1) + 1;
        if (v[id] < 0 || v[id] > NumElements(u.src(0).shape())) return std::nullopt;
        if (v[id] == 0 && (u.num_src() == 2 || x(2) != 0)) return std::nullopt;
        break;
      case Op::kLoad:
        v[id] = x(0);
        break;
      default:
        return std::nullopt;
    }
  }
  return v[order.back()];
}

}  // namespace

std::string Text(const FrozenGraph& kernel) {
  const Kernel parts = PartsOf(kernel);
  return Printer(parts).Print();
}

std::string Difference(UOp value, const FrozenGraph& kernel, int64_t points,
                       std::mt19937_64* random) {
  const Kernel k = PartsOf(kernel);
  const Graph& g = *kernel.graph;
  // The chain's axes: those that are summed up walk the folded ranges, the others the loops, and an
  // axis of size 1 walks none.
  const bool sums = value.is(Op::kReduce);
  const UOp chain = sums ? value.src(0) : value;
  const ShapeView shape = chain.shape();
  std::vector<UOp> range(shape.size());
  size_t loop = 0, fold = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const bool folds = sums && std::ranges::find(value.reduced_axes(), static_cast<int64_t>(i)) !=
                                   value.arg().end();
    const std::vector<UOp>& from = folds ? k.folded : k.loops;
    size_t& next = folds ? fold : loop;
    if (next == from.size()) return "the kernel has fewer ranges than the chain";
    range[i] = from[next++];
    if (range[i].src(0).const_word() != shape[i]) return "a range has another size than its axis";
  }
  const std::vector<uint32_t> element = PostOrder(k.element), target = PostOrder(k.store.src(0));
  std::vector<int64_t> v(g.size());
  const int64_t all = NumElements(shape);
  for (int64_t n = 0; n < std::min(all, points); ++n) {
    const int64_t flat =
        all <= points ? n : static_cast<int64_t>((*random)() % static_cast<uint64_t>(all));
    const Position at = Unflat(shape, flat);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (range[i].valid()) v[range[i].id()] = at[i];
    }
    const std::optional<int64_t> got = Evaluate(g, element, &v);
    const int64_t want = Walk(chain, at);
    if (got != want) {
      return StrCat("at ", ToString(at), ": element ", want, " became ",
                    got ? StrCat(*got) : "an access outside of its buffer");
    }
    const std::optional<int64_t> to = Evaluate(g, target, &v);
    if (!sums && to != flat + 1) return StrCat("at ", ToString(at), ": stored elsewhere");
  }
  return "";
}

}  // namespace telegrad::test
