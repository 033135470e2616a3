#include "engine/rewrite/copier.h"

#include <utility>

namespace telegrad {

absl::StatusOr<FrozenGraph> Copier::Run(Budget* budget,
                                        absl::FunctionRef<absl::StatusOr<UOp>(UOp u)> make) {
  for (const uint32_t id : PostOrder(from_.root())) {
    const UOp u = from_.graph->at(id);
    TG_RETURN_IF_ERROR(budget->SpendSteps(1 + u.num_src()));
    TG_ASSIGN_OR_RETURN(made_[id], make(u));
    if (!made_[id].valid()) return out_->status();
  }
  return FrozenGraph{out_, made_[from_.root_id].id()};
}

UOp Copier::Same(UOp u) {
  src_.clear();
  for (int i = 0; i < u.num_src(); ++i) src_.push_back(Made(u.src(i)));
  return MakeLike(out(), u, src_);
}

}  // namespace telegrad
