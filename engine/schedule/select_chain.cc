// Two spellings: a chain down to its base, and one whose last WHERE is left out, because a
// disjunction of all masks has already chosen between the chain and the base:
// where(m0 | m1 | m2, where(m2, v2, where(m1, v1, v0)), base). Links in the middle of a chain have
// no other user, so no link belongs to two chains.
#include "engine/schedule/select_chain.h"

#include <algorithm>

namespace telegrad {
namespace {

constexpr size_t kLeastLinks = 8;
constexpr size_t kMostViews = 16;

bool SameView(UOp a, UOp b) {
  return a.op() == b.op() && std::ranges::equal(a.arg(), b.arg()) &&
         std::ranges::equal(a.shape(), b.shape()) &&
         std::ranges::equal(a.src(0).shape(), b.src(0).shape());
}

}  // namespace

std::optional<Slices> FindSlices(const std::vector<UOp>& tensors) {
  Slices out{tensors[0], {}, {}, 0, 0};
  if (std::ranges::all_of(tensors, [&](UOp t) { return t == tensors[0]; })) return out;
  // Down the first two until they are parts of one tensor.
  UOp a = tensors[0], b = tensors[1];
  while (!(a.is(Op::kShrink) && b.is(Op::kShrink) && a.src(0) == b.src(0))) {
    if (!Is(a.op(), kMovement) || a.is(Op::kPad) || !Is(b.op(), kMovement) || !SameView(a, b)) {
      return std::nullopt;
    }
    if (out.views.size() == kMostViews) return std::nullopt;
    out.views.push_back(a);
    a = a.src(0);
    b = b.src(0);
  }
  out.shrink = a;
  const auto differs = std::ranges::mismatch(a.arg(), b.arg());
  if (differs.in1 == a.arg().end()) return std::nullopt;
  const auto word = static_cast<size_t>(differs.in1 - a.arg().begin());
  if (word % 2 != 0) return std::nullopt;
  out.axis = word / 2;
  out.step = *differs.in2 - *differs.in1;
  for (size_t k = 1; k < tensors.size(); ++k) {
    UOp t = tensors[k];
    for (const UOp view : out.views) {
      if (!Is(t.op(), kMovement) || !SameView(t, view)) return std::nullopt;
      t = t.src(0);
    }
    if (!t.is(Op::kShrink) || t.src(0) != a.src(0)) return std::nullopt;
    std::vector<int64_t> want(a.arg().begin(), a.arg().end());
    want[word] += static_cast<int64_t>(k) * out.step;
    if (!std::ranges::equal(t.arg(), want)) return std::nullopt;
  }
  return out;
}

SelectChains::SelectChains(const Graph& graph, const std::vector<uint32_t>& order)
    : users_(graph.size(), 0), goes_on_(graph.size(), false) {
  for (uint32_t id : order) {
    for (uint32_t s : graph.src(id)) ++users_[s];
  }
  for (uint32_t id : order) {
    const UOp u = graph.at(id);
    if (!u.is(Op::kWhere)) continue;
    if (users_[u.src(2).id()] == 1) goes_on_[u.src(2).id()] = true;
    const UOp inner = ThroughReshapes(u.src(1));
    if (ThroughReshapes(u.src(0)).is(Op::kOr) && users_[inner.id()] == 1) {
      goes_on_[inner.id()] = true;
    }
  }
}

UOp SelectChains::ThroughReshapes(UOp u) const {
  UOp v = u;
  for (size_t i = 0; v.is(Op::kReshape) && users_[v.id()] == 1 && i < kMostViews; ++i) v = v.src(0);
  return users_[v.id()] == 1 ? v : u;
}

std::vector<UOp> SelectChains::Links(UOp top) const {
  std::vector<UOp> links;
  for (UOp u = top; u.is(Op::kWhere); u = u.src(2)) {
    if (u != top && users_[u.id()] != 1) break;
    links.push_back(u);
  }
  return links;
}

absl::StatusOr<std::optional<SelectChain>> SelectChains::At(UOp where, Budget* budget) const {
  const std::optional<SelectChain> none;
  if (goes_on_[where.id()]) return none;
  // The disjunction's spelling.
  const UOp inner = ThroughReshapes(where.src(1)), any = ThroughReshapes(where.src(0));
  const bool chosen = inner.is(Op::kWhere) && goes_on_[inner.id()] && any.is(Op::kOr) &&
                      std::ranges::equal(inner.shape(), any.shape());
  const std::vector<UOp> links = Links(chosen ? inner : where);
  if (links.size() + (chosen ? 1 : 0) < kLeastLinks) return none;
  TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(links.size())));

  std::vector<UOp> masks, values;
  for (auto it = links.rbegin(); it != links.rend(); ++it) {
    masks.push_back(it->src(0));
    values.push_back(it->src(1));
  }
  SelectChain chain;
  if (chosen) {
    // (..((m0 | m1) | m2) ..) | mk, the chain's in the same order.
    UOp u = any;
    for (size_t k = masks.size(); k-- > 0; u = u.src(0)) {
      if (!u.is(Op::kOr) || u.src(1) != masks[k]) return none;
    }
    masks.insert(masks.begin(), u);
    values.insert(values.begin(), links.back().src(2));
    chain.base = where.src(2);
  } else {
    chain.base = links.back().src(2);
  }
  const std::optional<Slices> m = FindSlices(masks), v = FindSlices(values);
  if (!m || !v || !m->shrink.valid()) return none;
  chain.masks = *m;
  chain.values = *v;
  chain.length = static_cast<int64_t>(masks.size());
  chain.dims.assign(links[0].shape().begin(), links[0].shape().end());
  return std::optional(chain);
}

}  // namespace telegrad
