// A list of moves is carried out in the same steps for every target; one that the list has no move
// for finds nothing to do:
//
//   plan      what each range is split into, and the threads and workgroups that several share
//   split     each range becomes the sum of its parts (split.h)
//   gate      what rounding up adds does nothing (gate.h)
//   stage     a product's operands are read from local memory (workgroup_stage.h)
//   close     the loops that are left are put into their order (close.h)
#include "engine/lowering/moves/carry_out.h"

#include <algorithm>

#include "engine/lowering/moves/close.h"
#include "engine/lowering/moves/gate.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/workgroup.h"
#include "engine/lowering/workgroup_stage.h"

namespace telegrad {
namespace {

class Carrier {
 public:
  Carrier(Rewriter& b, const Target& target, UOp sink, const KernelShape& shape,
          const std::vector<RangeMove>& moves)
      : b_(b),
        g_(*b.graph()),
        target_(target),
        sink_(sink),
        s_(shape),
        moves_(moves),
        padding_(PaddingOf(target)) {
    for (UOp range : s_.d.ranges) next_id_ = std::max(next_id_, range.range_id() + 1);
  }

  absl::StatusOr<UOp> Run() {
    splits_ = PlanSplits(moves_);
    TG_ASSIGN_OR_RETURN(parallel_, MakeParallel(b_, splits_, moves_, target_, &next_id_));
    // An earlier pass may have given the iterations to threads.
    for (UOp end = sink_.src(0); end.is(Op::kEnd); end = end.src(0)) {
      for (int i = 1; i < end.num_src(); ++i) {
        if (IsThreads(end.src(i))) parallel_.ranges.push_back(end.src(i));
      }
    }
    TG_RETURN_IF_ERROR(FindProduct());
    for (SplitRange& s : splits_) {
      TG_RETURN_IF_ERROR(MakeParts(b_, parallel_, padding_, s_.once, &next_id_, &s));
      with_[s.range.id()] = s.with;
      if (s.inside.valid()) with_[s.inside.id()] = {s.inside_with, {}};
    }
    UOp out = sink_;
    if (padding_.gates_loads) {
      TG_ASSIGN_OR_RETURN(out, Gate(out));
    }
    if (product_) Stage();
    out = Substitute(b_, out, with_);
    if (!out.valid()) return g_.status();
    if (!padding_.gates_loads) {
      TG_ASSIGN_OR_RETURN(out, Gate(out));
    }
    out = CloseLoops(b_, out, splits_, moves_, parallel_);
    if (!out.valid()) return g_.status();
    return out;
  }

 private:
  bool Has(Move::Kind kind) const {
    return std::ranges::find(moves_, kind, &RangeMove::kind) != moves_.end();
  }
  SplitRange& SplitOf(UOp range) { return *std::ranges::find(splits_, range, &SplitRange::range); }

  absl::Status FindProduct() {
    if (!Has(Move::Kind::kStage)) return absl::OkStatus();
    product_ = FindMatmul(s_);
    if (!product_) return Internal("lowering: a reduction is staged that is not a matrix product");
    for (UOp range : {product_->m, product_->n, product_->k}) SplitOf(range).staged = true;
    if (!Has(Move::Kind::kTensorcore)) return absl::OkStatus();
    const auto columns = std::ranges::find_if(moves_, [&](const RangeMove& m) {
      return m.kind == Move::Kind::kTensorcore && m.range == product_->n;
    });
    if (columns == moves_.end()) return Internal("lowering: TENSORCORE without its columns");
    fragments_ = FragmentsFor(b_, target_.matrix, product_->a.dtype(), columns->amount, next_id_++);
    if (!fragments_) return Internal("lowering: TENSORCORE without a matrix instruction");
    parallel_.ranges.push_back(fragments_->lane);
    parallel_.rows_and_columns[product_->m.id()] = fragments_->c.row;
    parallel_.rows_and_columns[product_->n.id()] = fragments_->c.column;
    return absl::OkStatus();
  }

  // The operands' panels have gates of their own.
  absl::StatusOr<UOp> Gate(UOp sink) {
    std::vector<UOp> apart;
    if (product_) apart = {product_->a, product_->b, product_->reduce};
    return GateIterations(b_, sink, splits_, parallel_, padding_, apart);
  }

  // Loops around the product, outermost first, then that of its reduction.
  std::vector<UOp> LoopsOfProduct() {
    std::vector<UOp> loops;
    for (UOp range : s_.d.ranges) {
      if (range == product_->k || !s_.d.Depends(product_->reduce, range)) continue;
      const auto split = with_.find(range.id());
      for (UOp part : split == with_.end() ? std::vector<UOp>{range} : split->second.ranges) {
        if (IsType(part, AxisType::kLoop)) loops.push_back(part);
      }
    }
    const UOp own = SplitOf(product_->k).outer;
    if (own.is(Op::kRange)) loops.push_back(own);
    return loops;
  }

  // The product's operands come from panels, which each iteration of the loops fills.
  void Stage() {
    std::vector<UOp> threads;
    for (UOp range : parallel_.ranges) {
      if (IsThreads(range)) threads.push_back(range);
    }
    StageProduct(b_, target_,
                 {*product_, fragments_ ? &*fragments_ : nullptr, SplitOf(product_->m),
                  SplitOf(product_->n), SplitOf(product_->k), threads, LoopsOfProduct(),
                  std::ranges::find(moves_, Move::Kind::kStage, &RangeMove::kind)->ring},
                 &next_id_, &with_);
  }

  Rewriter& b_;
  Graph& g_;
  const Target& target_;
  const UOp sink_;
  const KernelShape& s_;
  const std::vector<RangeMove>& moves_;
  const Padding& padding_;
  int64_t next_id_ = 0;
  Parallel parallel_;
  std::vector<SplitRange> splits_;
  std::optional<Matmul> product_;       // with STAGE
  std::optional<Fragments> fragments_;  // with TENSORCORE
  Replacements with_;
};

}  // namespace

absl::StatusOr<UOp> CarryOut(Rewriter& b, const Target& target, UOp sink, const KernelShape& shape,
                             const std::vector<RangeMove>& moves) {
  return Carrier(b, target, sink, shape, moves).Run();
}

}  // namespace telegrad
