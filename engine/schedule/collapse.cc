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
#include "engine/schedule/tensor_form.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

// A fold of so few values is done sooner than its rows are scattered.
constexpr int64_t kLeastScattered = 8;

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
    for (const uint32_t id : PostOrder(sink_)) {
      TG_RETURN_IF_ERROR(budget_->SpendSteps());
      src.clear();
      for (uint32_t s : from_.src(id)) src.push_back(g_.at(now[s]));
      UOp made = Copy(from_.at(id), src);
      if (made.is(Op::kReduce)) {
        TG_ASSIGN_OR_RETURN(const UOp collapsed, Collapse(made));
        if (collapsed.valid()) made = collapsed;
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

  // Along some axis that is folded over, all elements are the same.
  bool Repeats(UOp x, uint32_t axes) const {
    for (size_t d = 0; d < x.shape().size(); ++d) {
      if (((axes >> d) & 1) != 0 && x.shape()[d] > 1 && !facts_.varies(x.id(), d)) return true;
    }
    return false;
  }

  // What the REDUCE collapses to, or invalid.
  absl::StatusOr<UOp> Collapse(UOp reduce) {
    const UOp x = reduce.src(0);
    const Shape dims(x.shape().begin(), x.shape().end());
    if (NumElements(dims) == 0) return UOp();
    facts_.Update();
    uint32_t axes = 0, all = 0;
    for (int64_t axis : reduce.arg().subspan(1)) axes |= uint32_t{1} << axis;
    if (!facts_.pure(x.id()) && !facts_.masked(x.id()) && !Repeats(x, axes)) return UOp();
    for (size_t d = 0; d < dims.size(); ++d) all |= dims[d] > 1 ? uint32_t{1} << d : 0;
    const auto kind = static_cast<ReduceKind>(reduce.arg(0));
    const uint32_t kept = all & ~axes;

    if (form_ == nullptr || form_->large()) {
      form_ = std::make_unique<IndexForm>(g_, facts_, budget_);
    }
    TG_ASSIGN_OR_RETURN(const UOp body, form_->ElementOf(x, form_->Everywhere(dims)));
    if (!body.valid()) return UOp();
    MaskedReduction reduction(form_.get(), kind, body, all & axes, dims);
    const bool eliminated = reduction.Eliminate();
    TG_RETURN_IF_ERROR(form_->graph().status());
    TG_RETURN_IF_ERROR(held_.GrowTo(form_->graph().bytes() + g_.bytes()));
    TensorForm tensors(&g_, form_.get(), dims);
    if (reduction.axes() != 0) {
      const auto places = reduction.ToPlaces();
      TG_RETURN_IF_ERROR(form_->graph().status());
      if (places) return Scatter(kind, &reduction, *places, kept, &tensors);
      if (!eliminated) return UOp();
    }
    const UOp element = tensors.Make(reduction.body(), kept | reduction.axes());
    TG_RETURN_IF_ERROR(form_->graph().status());
    if (reduction.axes() != 0) return Fold(kind, element, reduction.axes());
    if (!reduction.may_be_negative_zero()) return element;
    return g_.Make(Op::kAdd, {element, g_.ConstFloat(element.dtype(), 0)});
  }

  UOp Fold(ReduceKind kind, UOp x, uint32_t axes) {
    std::vector<int64_t> arg{static_cast<int64_t>(kind)};
    for (int d = 0; d < kMaxRank; ++d) {
      if (((axes >> d) & 1) != 0) arg.push_back(d);
    }
    return g_.Make(Op::kReduce, {x}, arg);
  }

  // The rows are the places of all sent axes, for each place of the axes that their indices depend
  // on besides those folded over; what else there is lies within a row.
  absl::StatusOr<UOp> Scatter(ReduceKind kind, MaskedReduction* reduction,
                              const std::vector<MaskedReduction::Place>& places, uint32_t kept,
                              TensorForm* tensors) {
    constexpr ScatterKind kKinds[] = {ScatterKind::kAdd, ScatterKind::kMul, ScatterKind::kMax};
    const Shape& dims = tensors->dims();
    Rewriter& b = form_->b();
    const uint32_t folded = reduction->axes();
    uint32_t sent = 0, depends = 0;
    for (const auto& place : places) {
      sent |= uint32_t{1} << place.axis;
      depends |= form_->Axes(place.index);
    }
    const uint32_t outer = depends & ~folded, inner = kept & ~sent & ~outer;
    const auto list = [&](uint32_t axes, Shape* sizes, std::vector<int64_t>* order) {
      int64_t product = 1;
      for (size_t d = 0; d < dims.size(); ++d) {
        if (((axes >> d) & 1) == 0) continue;
        product *= dims[d];
        if (sizes != nullptr) sizes->push_back(dims[d]);
        if (order != nullptr) order->push_back(static_cast<int64_t>(d));
      }
      return product;
    };
    const int64_t count = list(folded, nullptr, nullptr), rows = list(outer, nullptr, nullptr);
    const int64_t places_of_row = list(sent, nullptr, nullptr);
    if (count < kLeastScattered) return UOp();

    // outer..., sent... in row-major order.
    const Indices at = form_->Everywhere(dims);
    Indices index;
    Shape sizes;
    UOp valid = form_->graph().True();
    for (size_t d = 0; d < dims.size(); ++d) {
      if (((outer >> d) & 1) == 0) continue;
      index.push_back(at[d]);
      sizes.push_back(dims[d]);
    }
    for (const auto& place : places) {
      index.push_back(place.index);
      sizes.push_back(dims[static_cast<size_t>(place.axis)]);
      valid = b.Make(Op::kAnd, {valid, InRange(b, place.index, sizes.back())});
    }
    UOp row = FlatIndex(b, sizes, index);
    if (sizes.size() > 1) row = b.Make(Op::kWhere, {valid, row, form_->graph().Index(-1)});
    TG_RETURN_IF_ERROR(form_->graph().status());

    // [outer, folded] and [outer, folded, inner].
    std::vector<int64_t> order, result_order;
    Shape value_dims{rows * count}, base_dims{rows * places_of_row}, result_dims;
    list(outer, nullptr, &order);
    list(folded, nullptr, &order);
    list(inner, nullptr, &order);
    list(inner, &value_dims, nullptr);
    list(inner, &base_dims, nullptr);
    const auto arrange = [&](UOp x, uint32_t axes, const Shape& to) {
      std::vector<int64_t> permuted = order;
      for (size_t d = 0; d < dims.size(); ++d) {
        if (((axes >> d) & 1) == 0) std::erase(permuted, static_cast<int64_t>(d));
      }
      for (size_t d = 0; d < dims.size(); ++d) {  // of size 1: to the end
        if (((axes >> d) & 1) == 0) permuted.push_back(static_cast<int64_t>(d));
      }
      if (!std::ranges::is_sorted(permuted)) x = g_.Make(Op::kPermute, {x}, permuted);
      return Reshaped(g_, x, to);
    };
    const UOp to = arrange(tensors->Make(row, outer | folded), outer | folded, Shape{rows * count});
    const UOp values = arrange(tensors->Make(reduction->body(), outer | folded | inner),
                               outer | folded | inner, value_dims);
    TG_RETURN_IF_ERROR(form_->graph().status());
    TG_RETURN_IF_ERROR(g_.status());
    const DType dtype = values.dtype();
    const UOp identity = g_.ConstWord(dtype, ReduceIdentity(kind, dtype));
    const UOp base =
        g_.Make(Op::kExpand, {Reshaped(g_, identity, Shape(base_dims.size(), 1))}, base_dims);
    const UOp scattered = g_.Make(Op::kScatter, DType::kVoid, {base, to, values},
                                  {static_cast<int64_t>(kKinds[static_cast<size_t>(kind)])});

    // Back to one dim for each axis.
    list(outer, &result_dims, &result_order);
    for (const auto& place : places) {
      result_dims.push_back(dims[static_cast<size_t>(place.axis)]);
      result_order.push_back(place.axis);
    }
    list(inner, &result_dims, &result_order);
    UOp out = Reshaped(g_, scattered, result_dims);
    std::vector<int64_t> back(result_order.size());
    for (size_t i = 0; i < back.size(); ++i) back[i] = static_cast<int64_t>(i);
    std::ranges::sort(back, {}, [&](int64_t i) { return result_order[static_cast<size_t>(i)]; });
    if (!std::ranges::is_sorted(back)) out = g_.Make(Op::kPermute, {out}, back);
    return Reshaped(g_, out, tensors->DimsOf(kept));
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
