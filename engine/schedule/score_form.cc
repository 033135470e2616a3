#include "engine/schedule/score_form.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/ir/scalar.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/schedule/cost.h"

namespace telegrad {
namespace {

bool HasScores(const Graph& graph, std::span<const uint32_t> order) {
  std::vector<int64_t> sizes, softened;
  for (const uint32_t id : order) {
    const UOp u = graph.at(id);
    if (u.is(Op::kReduce) && Grows(u)) sizes.push_back(NumElements(u.shape()));
    const bool maximum =
        u.is(Op::kReduce) && IsFloat(u.dtype()) && u.reduce_kind() == ReduceKind::kMax;
    if (maximum || u.is(Op::kExp2)) softened.push_back(NumElements(u.src(0).shape()));
  }
  return std::ranges::any_of(softened,
                             [&](int64_t n) { return std::ranges::find(sizes, n) != sizes.end(); });
}

bool IsMinusInf(UOp u) {
  if (!u.is_const() || !IsFloat(u.dtype())) return false;
  const double value = ScalarAsDouble(u.dtype(), u.const_word());
  return std::isinf(value) && value < 0;
}

class ScoreFormer {
 public:
  explicit ScoreFormer(Budget* budget)
      : out_(std::make_shared<Graph>()), b_(out_.get(), {&kAlgebra}, budget, Shapes::kExact) {}

  absl::StatusOr<FrozenGraph> Run(UOp sink, std::span<const uint32_t> order, Budget* budget) {
    const Graph& from = *sink.graph();
    NodeMap<uint32_t> made(from);
    std::vector<UOp> src;
    for (const uint32_t id : order) {
      TG_RETURN_IF_ERROR(budget->SpendSteps(1 + static_cast<int64_t>(from.src(id).size())));
      src.clear();
      for (const uint32_t s : from.src(id)) src.push_back(out_->at(made.at(s)));
      const UOp copy = Copy(from.at(id), src);
      if (!copy.valid()) return out_->status();
      made[id] = copy.id();
    }
    return FrozenGraph{out_, made[sink.id()]};
  }

 private:
  UOp Copy(UOp u, std::vector<UOp>& src) {
    if (u.is(Op::kReduce)) return Reduced(u, src[0]);
    if (u.is(Op::kPermute)) return Permuted(src[0], u.arg());
    if (u.is(Op::kReshape)) return Reshaped(src[0], u.arg());
    if (!Is(u.op(), kAlu)) return Make(u.op(), u.dtype(), src, u.arg());
    UseConstants(u, &src);
    for (int i = 0; u.is(Op::kAdd) && i < 2; ++i) {
      const UOp minus = Negated(src[static_cast<size_t>(i)]);
      if (minus.valid()) return b_.Make(Op::kSub, {src[static_cast<size_t>(1 - i)], minus});
    }
    const UOp made = b_.Make(u.op(), u.dtype(), src, u.arg());
    return made.valid() && IsCommuted(made, u.op(), src) ? Make(u.op(), u.dtype(), src, u.arg())
                                                         : made;
  }

  // Whether it is the same sum but for the order of its values, which is that of their numbers:
  // where layers share one, such as a mask, it comes first in all but one, which would be another
  // kernel. That of integers is what tells masks.
  static bool IsCommuted(UOp made, Op op, std::span<const UOp> src) {
    return op == Op::kAdd && made.is(op) && IsFloat(made.dtype()) && made.src(0) == src[1] &&
           made.src(1) == src[0] && !src[0].is_const() && !src[1].is_const();
  }

  UOp Make(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg) {
    return out_->Make(op, dtype, src, std::vector<int64_t>(arg.begin(), arg.end()));
  }

  // Constants in place of views of them, as long as another operand has the shape: the others may
  // be scalars.
  static void UseConstants(UOp of, std::vector<UOp>* src) {
    const auto is_constant = [](UOp u) {
      while (u.is(Op::kReshape) || u.is(Op::kExpand) || u.is(Op::kPermute)) u = u.src(0);
      return u.is_const();
    };
    const bool keeps_shape = std::ranges::any_of(
        *src, [&](UOp u) { return !is_constant(u) && std::ranges::equal(u.shape(), of.shape()); });
    if (!keeps_shape) return;
    for (UOp& u : *src) {
      while (is_constant(u) && !u.is_const()) u = u.src(0);
    }
  }

  // The value of which `u` is a view of the negative, in that view; invalid if it is none.
  UOp Negated(UOp u) {
    std::vector<UOp> views;
    for (; u.is(Op::kReshape) || u.is(Op::kExpand) || u.is(Op::kPermute); u = u.src(0)) {
      views.push_back(u);
    }
    if (views.empty() || !u.is(Op::kNeg)) return {};
    u = u.src(0);
    for (size_t i = views.size(); i-- > 0;) {
      u = Make(views[i].op(), DType::kVoid, std::vector{u}, views[i].arg());
    }
    return u;
  }

  UOp Reduced(UOp reduce, UOp x) {
    if (x.is(Op::kPermute)) return ReducedBelow(x, reduce);
    const UOp compared = x.is(Op::kCast) ? x.src(0) : UOp();
    const bool any = reduce.reduce_kind() == ReduceKind::kMax && compared.valid() &&
                     compared.is(Op::kCmpNe) && IsMinusInf(compared.src(1)) && IsInt(x.dtype());
    if (!any) return Make(Op::kReduce, DType::kVoid, std::vector{x}, reduce.arg());
    const UOp most = Make(Op::kReduce, DType::kVoid, std::vector{compared.src(0)}, reduce.arg());
    const UOp is_more = b_.Make(Op::kCmpNe, {most, compared.src(1)});
    return b_.Make(Op::kCast, x.dtype(), {is_more});
  }

  UOp ReducedBelow(UOp permute, UOp reduce) {
    std::vector<int64_t> arg{ToWord(reduce.reduce_kind())};
    for (const int64_t axis : reduce.reduced_axes()) {
      arg.push_back(permute.axes()[axis]);
    }
    std::ranges::sort(arg.begin() + 1, arg.end());
    const UOp sum = out_->Make(Op::kReduce, DType::kVoid, std::vector{permute.src(0)}, arg);
    return sum.valid() ? Permuted(sum, permute.arg()) : sum;
  }

  // A RESHAPE where the axes of more than one element keep their order.
  UOp Permuted(UOp x, std::span<const int64_t> axes) {
    std::vector<int64_t> shape, longer;
    for (const int64_t axis : axes) {
      shape.push_back(x.shape()[static_cast<size_t>(axis)]);
      if (shape.back() != 1) longer.push_back(axis);
    }
    if (std::ranges::is_sorted(longer)) return Reshaped(x, shape);
    return Make(Op::kPermute, DType::kVoid, std::vector{x}, axes);
  }

  UOp Reshaped(UOp x, std::span<const int64_t> shape) {
    if (x.is(Op::kReshape)) x = x.src(0);
    if (std::ranges::equal(x.shape(), shape)) return x;
    return Make(Op::kReshape, DType::kVoid, std::vector{x}, shape);
  }

  std::shared_ptr<Graph> out_;
  Rewriter b_;
};

}  // namespace

absl::StatusOr<FrozenGraph> SimplifyScores(FrozenGraph graph, Budget* budget) {
  const std::vector<uint32_t> order = PostOrder(graph.root());
  TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(order.size())));
  if (!HasScores(*graph.graph, order)) return graph;
  return ScoreFormer(budget).Run(graph.root(), order, budget);
}

}  // namespace telegrad
