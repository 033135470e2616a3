// A reduction whose body selects: what is left of it once the axes that a condition decides are
// gone.
#pragma once

#include <optional>
#include <vector>

#include "engine/schedule/index_form.h"

namespace telegrad {

class MaskedReduction {
 public:
  // Reduces `body`, an expression of `form`, over the RANGEs of `axes` (bits); RANGE d has dims[d]
  // values.
  MaskedReduction(IndexForm* form, ReduceKind kind, UOp body, uint32_t axes, Shape dims);
  // Of a reduction whose identity is an expression: only for ToComputedIndices.
  MaskedReduction(IndexForm* form, UOp identity, UOp body, uint32_t axes, Shape dims);

  // Takes out of `axes` those that it can, in terms of the others. True if any.
  bool Eliminate();

  // out[..., at[k][r], ...] over the axes left: the body's values go to computed places of other
  // axes, which the body depends on no more. To be asked once nothing else is left to do; nullopt:
  // the body does not select so.
  struct ComputedIndex {
    int axis;
    UOp index;  // i64; out of range: nowhere
  };
  std::optional<std::vector<ComputedIndex>> ToComputedIndices();

  UOp body() const { return body_; }
  uint32_t axes() const { return axes_; }
  // The body is a value of the data as it is: where a sum began with +0, it may be -0.
  bool may_be_negative_zero() const { return picked_ && kind_ == ReduceKind::kAdd; }

 private:
  struct Condition {
    UOp node;
    bool wanted;  // what it is where the body is not the identity
  };

  bool EliminateUnused(int axis);
  bool EliminateEqual(int axis);
  bool EliminateInterval(int axis);
  // `n` equal values reduced; invalid where that is not one expression.
  UOp Repeated(UOp value, UOp n);

  // The comparisons of integers with this op (kCmpEq: and its negation) on which the body depends,
  // that depend on the axis. nullopt: too many.
  std::optional<std::vector<UOp>> Comparisons(Op op, int axis);
  // The body if a comparison is `holds`.
  UOp Assuming(UOp comparison, bool holds);
  bool IsIdentity(UOp u) const { return u == identity_; }
  // The axis's place where the comparison, an equality, holds; invalid if it cannot be told.
  UOp Solve(UOp equality, int axis);
  // The body there, where the equality holds.
  UOp ValueAt(UOp equality, int axis, UOp place);
  // Adds the bound that `condition` puts on the axis: begin <= RANGE, or RANGE < end.
  bool AddBound(const Condition& condition, int axis, UOp* begin, UOp* end);

  UOp Range(int axis) {
    return form_.graph().Range(axis, AxisType::kLoop, form_.graph().Index(Size(axis)));
  }
  int64_t Size(int axis) const { return dims_[static_cast<size_t>(axis)]; }
  bool DependsOn(UOp u, int axis) { return ((form_.Axes(u) >> axis) & 1) != 0; }
  UOp Max(UOp x, UOp y);
  UOp Min(UOp x, UOp y);

  IndexForm& form_;
  Rewriter& b_;
  const ReduceKind kind_;
  const UOp identity_;
  UOp body_;
  uint32_t axes_;
  const Shape dims_;
  bool picked_ = false;
};

}  // namespace telegrad
