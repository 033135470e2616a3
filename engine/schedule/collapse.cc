// A client without IOTA, GATHER and SCATTER says them with comparisons: arange(n) is n sums of a
// triangle of ones, x[idx] the sum over j of where(j == idx[i], x[j], 0), and a write to computed
// rows the sum over k of where(i == idx[k], v[k], 0). Each is a REDUCE whose body is its identity
// but for the j that a condition names.
//
// So for each REDUCE that may be one, sources first: the body becomes a scalar expression over one
// RANGE for each axis (IndexForm), in which all views are index arithmetic and the rules have
// simplified the conditions; the axes that conditions decide are solved for (MaskedReduction); what
// is left goes back to tensor ops (TensorForm). Later reductions see the IOTAs that earlier ones
// have become. Anything else stays as it is.
#include "engine/schedule/collapse.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "engine/ir/scalar.h"
#include "engine/schedule/index_form.h"
#include "engine/schedule/masked_reduction.h"
#include "engine/schedule/scatter_form.h"
#include "engine/schedule/select_chain.h"
#include "engine/schedule/tensor_form.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

// A reduction of so few values is done sooner than its rows are scattered.
constexpr int64_t kLeastScattered = 8;

bool CollapsesAxis(uint32_t axes, size_t axis) { return ((axes >> axis) & 1) != 0; }

class Collapser {
 public:
  Collapser(UOp sink, Budget* budget)
      : from_(*sink.graph()),
        sink_(sink),
        budget_(budget),
        held_(budget),
        graph_(std::make_shared<Graph>()),
        g_(*graph_),
        facts_(g_) {}

  absl::StatusOr<FrozenGraph> Run() {
    NodeMap<uint32_t> now(from_);
    std::vector<UOp> src;
    const std::vector<uint32_t> order = PostOrder(sink_);
    const SelectChains chains(from_, order);
    for (const uint32_t id : order) {
      TG_RETURN_IF_ERROR(budget_->SpendSteps());
      src.clear();
      for (uint32_t s : from_.src(id)) src.push_back(g_.at(now[s]));
      UOp made = Copy(from_.at(id), src);
      if (from_.op(id) == Op::kReduce) {
        TG_ASSIGN_OR_RETURN(const UOp collapsed, Collapse(made));
        if (collapsed.valid()) made = collapsed;
      }
      if (from_.op(id) == Op::kWhere) {
        TG_ASSIGN_OR_RETURN(const auto chain, chains.At(from_.at(id), budget_));
        if (chain) {
          TG_ASSIGN_OR_RETURN(const UOp written, CollapseChain(*chain, made, now));
          if (written.valid()) made = written;
        }
      }
      TG_RETURN_IF_ERROR(g_.status());
      now[id] = made.id();
    }
    // Without what was tried or replaced.
    return Freeze(g_.at(now[sink_.id()]));
  }

 private:
  UOp Copy(UOp u, std::span<const UOp> src) {
    if (u.is(Op::kReshape)) return Reshaped(g_, src[0], {u.shape().begin(), u.shape().end()});
    return g_.Make(u.op(), u.dtype(), src, u.arg());
  }

  // Along some axis that is reduced over, all elements are the same.
  bool Repeats(UOp x, uint32_t axes) const {
    for (size_t d = 0; d < x.shape().size(); ++d) {
      if (CollapsesAxis(axes, d) && x.shape()[d] > 1 && !facts_.varies(x.id(), d)) return true;
    }
    return false;
  }

  // What the REDUCE collapses to, or invalid.
  absl::StatusOr<UOp> Collapse(UOp reduce) {
    const UOp x = reduce.src(0);
    const Shape dims(x.shape().begin(), x.shape().end());
    if (NumElements(dims) == 0) return UOp();
    facts_.Update();
    uint32_t axes = 0;
    for (int64_t axis : reduce.reduced_axes()) axes |= uint32_t{1} << axis;
    if (!facts_.pure(x.id()) && !facts_.masked(x.id()) && !Repeats(x, axes)) return UOp();
    const uint32_t all = Large(dims);
    const auto kind = reduce.reduce_kind();
    const uint32_t kept = all & ~axes;

    Renew();
    TG_ASSIGN_OR_RETURN(const UOp body, form_->ElementOf(x, form_->Everywhere(dims)));
    if (!body.valid()) return UOp();
    MaskedReduction reduction(form_.get(), kind, body, all & axes, dims);
    const bool eliminated = reduction.Eliminate();
    TG_RETURN_IF_ERROR(form_->graph().status());
    TG_RETURN_IF_ERROR(held_.GrowTo(form_->graph().bytes() + g_.bytes()));
    TensorForm tensors(&g_, form_.get(), dims);
    if (reduction.axes() != 0) {
      const auto indices = reduction.ToComputedIndices();
      TG_RETURN_IF_ERROR(form_->graph().status());
      int64_t count = 1;
      for (size_t d = 0; d < dims.size(); ++d)
        count *= CollapsesAxis(reduction.axes(), d) ? dims[d] : 1;
      if (indices && count >= kLeastScattered) {
        constexpr ScatterKind kKinds[] = {ScatterKind::kAdd, ScatterKind::kMul, ScatterKind::kMax};
        const UOp none = g_.ConstWord(body.dtype(), ReduceIdentity(kind, body.dtype()));
        return MakeScatter(&g_, form_.get(), &tensors,
                           {kKinds[static_cast<size_t>(kind)], reduction.body(), reduction.axes(),
                            kept, *indices, none});
      }
      if (indices || !eliminated) return UOp();
    }
    const UOp element = tensors.Make(reduction.body(), kept | reduction.axes());
    TG_RETURN_IF_ERROR(form_->graph().status());
    if (reduction.axes() != 0) return Fold(kind, element, reduction.axes());
    if (!reduction.may_be_negative_zero()) return element;
    return g_.Make(Op::kAdd, {element, g_.ConstFloat(element.dtype(), 0)});
  }

  UOp Fold(ReduceKind kind, UOp x, uint32_t axes) {
    std::vector<int64_t> arg{static_cast<int64_t>(kind)};
    for (size_t d = 0; d < kMaxRank; ++d) {
      if (CollapsesAxis(axes, d)) arg.push_back(static_cast<int64_t>(d));
    }
    return g_.Make(Op::kReduce, {x}, arg);
  }

  // The element of slice number `number`, an index expression, at a place of the slices.
  absl::StatusOr<UOp> SliceElement(const Slices& slices, const NodeMap<uint32_t>& now,
                                   std::span<const UOp> place, UOp number) {
    if (slices.first.shape().empty()) place = {};
    if (!slices.shrink.valid()) {
      return form_->ElementOf(g_.at(now.at(slices.first.id())), {place.begin(), place.end()});
    }
    Rewriter& b = form_->b();
    Indices index(place.begin(), place.end());
    UOp valid = form_->graph().True();  // there is no PAD
    for (const UOp view : slices.views) index = SourceIndices(b, view, index, &valid);
    index = SourceIndices(b, slices.shrink, index, &valid);
    const UOp ahead = b.Make(Op::kMul, {number, form_->graph().Index(slices.step)});
    index[slices.axis] = b.Make(Op::kAdd, {index[slices.axis], ahead});
    TG_RETURN_IF_ERROR(form_->graph().status());
    return form_->ElementOf(g_.at(now.at(slices.shrink.src(0).id())), index);
  }

  // The last of a chain's writes to a place stays, as in a SCATTER. The links become an axis of
  // their own.
  absl::StatusOr<UOp> CollapseChain(const SelectChain& chain, UOp where,
                                    const NodeMap<uint32_t>& now) {
    facts_.Update();
    const UOp masks = g_.at(now.at(chain.masks.shrink.src(0).id()));
    const size_t rank = chain.dims.size();
    if (!facts_.masked(masks.id()) || rank == kMaxRank || NumElements(chain.dims) == 0) {
      return UOp();
    }
    Shape dims = chain.dims;
    dims.push_back(chain.length);
    Renew();
    const Indices at = form_->Everywhere(dims);
    const auto place = std::span(at).first(rank);
    TG_ASSIGN_OR_RETURN(const UOp mask, SliceElement(chain.masks, now, place, at[rank]));
    if (!mask.valid()) return UOp();
    TG_ASSIGN_OR_RETURN(const UOp value, SliceElement(chain.values, now, place, at[rank]));
    if (!value.valid()) return UOp();
    UOp base = g_.at(now.at(chain.base.id()));
    const UOp kept = form_->Anywhere(base);
    const UOp body = form_->b().Make(Op::kWhere, {mask, value, kept});
    TG_RETURN_IF_ERROR(form_->graph().status());
    MaskedReduction reduction(form_.get(), kept, body, uint32_t{1} << rank, dims);
    const auto indices = reduction.ToComputedIndices();
    TG_RETURN_IF_ERROR(form_->graph().status());
    if (!indices) return UOp();
    dims.back() = 1;
    if (!base.shape().empty()) base = Reshaped(g_, base, dims);
    dims.back() = chain.length;
    TensorForm tensors(&g_, form_.get(), dims);
    const uint32_t all = Large(chain.dims);
    TG_ASSIGN_OR_RETURN(const UOp out, MakeScatter(&g_, form_.get(), &tensors,
                                                   {ScatterKind::kSet, reduction.body(),
                                                    reduction.axes(), all, *indices, base}));
    return Reshaped(g_, out, {where.shape().begin(), where.shape().end()});
  }

  // The axes of more than one element.
  static uint32_t Large(ShapeView dims) {
    uint32_t out = 0;
    for (size_t d = 0; d < dims.size(); ++d) out |= dims[d] > 1 ? uint32_t{1} << d : 0;
    return out;
  }

  void Renew() {
    if (form_ == nullptr || form_->large()) {
      form_ = std::make_unique<IndexForm>(g_, facts_, budget_);
    }
  }

  const Graph& from_;
  const UOp sink_;
  Budget* const budget_;
  Budget::Held held_;
  std::shared_ptr<Graph> graph_;
  Graph& g_;
  TensorFacts facts_;
  std::unique_ptr<IndexForm> form_;
};

}  // namespace

absl::StatusOr<FrozenGraph> CollapseReductions(UOp sink, Budget* budget) {
  const Budget::Doing doing(budget, "collapsing masked reductions");
  return Collapser(sink, budget).Run();
}

}  // namespace telegrad
