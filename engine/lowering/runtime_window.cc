#include "engine/lowering/runtime_window.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/lowering/activity.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/position_form.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

// [first, first + size), and the conditions that say so.
struct Window {
  PositionForm first;
  int64_t size = 0;
  std::vector<UOp> conditions;
};

class WindowMover {
 public:
  WindowMover(Rewriter& b, UOp sink, const Dependence& d)
      : b_(b), g_(*b.graph()), sink_(sink), d_(d), activity_(sink, d) {}

  UOp Run() {
    Replacements with;
    for (const UOp range : d_.ranges) {
      if (!IsType(range, AxisType::kLoop) || !range.src(0).is_const()) continue;
      const std::optional<Window> window = WindowOf(range);
      if (window) Move(range, *window, &with);
    }
    return with.empty() ? sink_ : Substitute(b_, sink_, with);
  }

 private:
  // The same for all that closes the range.
  std::optional<Window> WindowOf(UOp range) const {
    std::optional<Window> window;
    for (uint32_t id : PostOrder(sink_)) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kEnd) && !u.is(Op::kReduce)) continue;
      if (std::ranges::find(u.src_ids().subspan(1), range.id()) == u.src_ids().end()) continue;
      const std::optional<Window> own = Between(activity_.Needs(u), range);
      if (!own) return std::nullopt;
      if (window && (own->size != window->size || own->first.terms != window->first.terms ||
                     own->first.constant != window->first.constant)) {
        return std::nullopt;
      }
      if (!window) window = own;
    }
    return window;
  }

  std::optional<Window> Between(const std::vector<UOp>& conditions, UOp range) const {
    std::optional<PositionForm> first, end;
    Window out;
    for (const UOp condition : conditions) {
      PositionForm form;  // < 0
      if (!d_.Depends(condition, range)) continue;
      if (!form.Add(condition.src(0), 1) || !form.Add(condition.src(1), -1)) continue;
      const auto own = form.terms.find(range.id());
      if (own == form.terms.end()) continue;
      const int64_t sign = own->second;
      form.terms.erase(own);
      const bool given = std::ranges::all_of(
          form.terms, [&](const auto& term) { return activity_.IsGiven(g_.at(term.first)); });
      if (!given || (sign != 1 && sign != -1)) continue;
      // r + form < 0: r < -form. -r + form < 0: r >= form + 1.
      std::optional<PositionForm>& side = sign > 0 ? end : first;
      if (side) return std::nullopt;
      side.emplace();
      for (const auto& [id, c] : form.terms) side->terms[id] = -sign * c;
      side->constant = sign > 0 ? -form.constant : form.constant + 1;
      out.conditions.push_back(condition);
    }
    if (!first || !end || first->terms.empty() || first->terms != end->terms) return std::nullopt;
    out.first = *first;
    out.size = end->constant - first->constant;
    return out;
  }

  void Move(UOp range, const Window& window, Replacements* with) {
    if (window.size < 1 || window.size >= SizeOf(range)) return;
    UOp first = g_.Index(window.first.constant);
    for (const auto& [id, c] : window.first.terms) {
      const UOp term = b_.Make(Op::kMul, {AsIndex(g_, g_.at(id)), g_.Index(c)});
      first = b_.Make(Op::kAdd, {first, term});
    }
    if (first.vmin() < 0 || first.vmax() > SizeOf(range) - window.size) return;
    const UOp part = g_.Range(range.range_id(), AxisType::kLoop, g_.Index(window.size));
    (*with)[range.id()] = {b_.Make(Op::kAdd, {first, part}), {part}};
    for (const UOp condition : window.conditions) (*with)[condition.id()] = {g_.True(), {}};
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const Dependence& d_;
  const Activity activity_;
};

}  // namespace

UOp MoveWindows(Rewriter& b, UOp sink) {
  if (!ReadsNumbers(sink)) return sink;
  const std::optional<Dependence> d = FindDependence(sink);
  return d ? WindowMover(b, sink, *d).Run() : sink;
}

}  // namespace telegrad
