#include "engine/schedule/window_taps.h"

#include <algorithm>
#include <bit>

#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "engine/rules/fold.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

constexpr size_t kMostPaddedViews = 64;
constexpr int64_t kMostTaps = 64;
constexpr int64_t kMostElements = 1 << 14;  // of a group
static_assert(kMaxRank <= 32);              // AxisSet

WindowTaps::AxisSet Bit(size_t axis) { return WindowTaps::AxisSet{1} << axis; }

}  // namespace

std::optional<PaddedViews> PaddedViews::Of(UOp x) {
  PaddedViews out{.base = x.is(Op::kCast) ? x.src(0) : x, .views = {}};
  bool pads = false;
  for (; Is(out.base.op(), kMovement); out.base = out.base.src(0)) {
    if (out.views.size() == kMostPaddedViews) return std::nullopt;
    pads |= out.base.is(Op::kPad);
    out.views.push_back(out.base);
  }
  return pads ? std::optional(std::move(out)) : std::nullopt;
}

absl::StatusOr<std::optional<WindowTaps>> WindowTaps::Of(UOp sum, const PaddedViews& views,
                                                         Budget* budget) {
  static constexpr const RuleTable* kTables[] = {&kAlgebra, &kDivMod};
  WindowTaps out(sum, views.base.shape());
  Rewriter b(out.graph_.get(), kTables, budget);
  const bool found = out.FindIndices(views, b);
  TG_RETURN_IF_ERROR(out.graph_->status());
  if (!found) return std::optional<WindowTaps>();
  for (size_t axis = 0; axis < out.dims_.size(); ++axis) {
    if (!Has(out.folded_, axis) || out.dims_[axis] == 1) continue;
    std::optional<Group> group = out.FindGroup(axis);
    if (!group) continue;
    TG_RETURN_IF_ERROR(out.LookUp(&*group, budget));
    out.groups_.push_back(*std::move(group));
  }
  return std::optional<WindowTaps>(std::move(out));
}

WindowTaps::WindowTaps(UOp sum, ShapeView base)
    : dims_(sum.src(0).shape().begin(), sum.src(0).shape().end()),
      base_dims_(base.begin(), base.end()) {
  for (const int64_t axis : sum.reduced_axes()) folded_ |= Bit(static_cast<size_t>(axis));
}

bool WindowTaps::FindIndices(const PaddedViews& views, Rewriter& b) {
  for (size_t d = 0; d < dims_.size(); ++d) {
    const UOp size = graph_->Index(dims_[d]);
    ranges_.push_back(dims_[d] == 1
                          ? graph_->Index(0)
                          : graph_->Range(static_cast<int64_t>(d), AxisType::kLoop, size));
  }
  index_ = ranges_;
  UOp valid = graph_->True();
  for (const UOp view : views.views) index_ = SourceIndices(b, view, index_, &valid);
  if (!graph_->status().ok() || valid.is_const()) return false;
  axes_.assign(graph_->size(), 0);
  for (uint32_t id = 0; id < graph_->size(); ++id) {
    if (graph_->op(id) == Op::kRange)
      axes_[id] = Bit(static_cast<size_t>(graph_->at(id).range_id()));
    for (const uint32_t s : graph_->src(id)) axes_[id] |= axes_[s];
  }
  std::vector<UOp> stack{valid};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.is(Op::kAnd)) {
      stack.insert(stack.end(), {u.src(0), u.src(1)});
    } else {
      conditions_.push_back(u);
    }
  }
  return true;
}

std::optional<WindowTaps::Group> WindowTaps::FindGroup(size_t taps) const {
  Group group;
  group.taps = taps;
  group.axes = Bit(taps);
  for (const UOp c : conditions_) {
    if (Has(AxesOf(c), taps)) group.axes |= AxesOf(c);
  }
  const AxisSet others = group.axes & ~Bit(taps);
  if (std::popcount(others) > 1 || (others & folded_) != 0) return std::nullopt;
  if (others != 0) group.places = static_cast<size_t>(std::countr_zero(others));
  const int64_t places = group.places ? dims_[*group.places] : 1;
  if (dims_[taps] > kMostTaps || places > kMostElements / dims_[taps]) return std::nullopt;
  bool own = true;
  for (size_t i = 0; i < index_.size(); ++i) {
    if ((AxesOf(index_[i]) & group.axes) == 0 || base_dims_[i] == 1) continue;
    own = own && (AxesOf(index_[i]) & ~group.axes) == 0;
    group.base.push_back(i);
  }
  if (!own || group.base.size() > 2) group.base.clear();
  return group;
}

absl::Status WindowTaps::LookUp(Group* group, Budget* budget) const {
  std::vector<bool> needed(graph_->size(), false);
  std::vector<uint32_t> conditions, cone;
  for (const UOp c : conditions_) {
    if ((AxesOf(c) & ~group->axes) == 0) conditions.push_back(c.id());
  }
  for (const uint32_t c : conditions) needed[c] = true;
  for (const size_t i : group->base) needed[index_[i].id()] = true;
  for (auto id = static_cast<uint32_t>(graph_->size()); id-- > 0;) {
    if (!needed[id]) continue;
    cone.push_back(id);
    if (graph_->op(id) == Op::kRange) continue;
    for (const uint32_t s : graph_->src(id)) needed[s] = true;
  }
  std::ranges::reverse(cone);
  const int64_t places = group->places ? dims_[*group->places] : 1, taps = dims_[group->taps];
  TG_RETURN_IF_ERROR(budget->SpendSteps(places * taps * static_cast<int64_t>(cone.size()) / 16));
  int64_t first = taps, last = -1;
  std::vector<int64_t> words(graph_->size());
  for (int64_t place = 0; place < places; ++place) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      Compute(cone, group->taps, tap, place, &words);
      if (!std::ranges::all_of(conditions, [&](uint32_t c) { return words[c] != 0; })) continue;
      first = std::min(first, tap);
      last = std::max(last, tap);
      Group::Element element{.tap = tap, .place = place, .position = {}};
      for (size_t i = 0; i < group->base.size(); ++i) {
        element.position[i] = words[index_[group->base[i]].id()];
      }
      group->elements.push_back(element);
    }
  }
  group->first = last < 0 ? 0 : first;
  group->count = last < 0 ? 0 : last - first + 1;
  return absl::OkStatus();
}

void WindowTaps::Compute(const std::vector<uint32_t>& cone, size_t tap_axis, int64_t tap,
                         int64_t place, std::vector<int64_t>* words) const {
  for (const uint32_t id : cone) {
    const UOp u = graph_->at(id);
    if (u.is_const()) {
      (*words)[id] = u.const_word();
    } else if (u.is(Op::kRange)) {
      (*words)[id] = static_cast<size_t>(u.range_id()) == tap_axis ? tap : place;
    } else {
      int64_t sources[3] = {};
      DType types[3] = {};
      const auto n = static_cast<size_t>(std::min(u.num_src(), 3));
      for (size_t i = 0; i < n; ++i) {
        const UOp s = u.src(static_cast<int>(i));
        sources[i] = (*words)[s.id()];
        types[i] = s.dtype();
      }
      (*words)[id] = *Fold(u.op(), u.dtype(), std::span(types, n), std::span(sources, n));
    }
  }
}

std::optional<std::vector<std::optional<size_t>>> WindowTaps::PlainAxes() const {
  AxisSet grouped = 0;
  for (const Group& group : groups_) {
    if (!group.places || group.base.empty()) return std::nullopt;
    if ((grouped & group.axes) != 0) return std::nullopt;
    grouped |= group.axes;
  }
  for (const UOp c : conditions_) {
    if ((AxesOf(c) & ~grouped) != 0) return std::nullopt;
  }
  for (size_t axis = 0; axis < dims_.size(); ++axis) {
    if (Has(folded_ & ~grouped, axis) && dims_[axis] > 1) return std::nullopt;
  }
  std::vector<std::optional<size_t>> plain(dims_.size());
  for (size_t i = 0; i < index_.size(); ++i) {
    const AxisSet axes = AxesOf(index_[i]);
    if ((axes & grouped) != 0 || base_dims_[i] == 1) continue;
    if (std::popcount(axes) != 1) return std::nullopt;
    const auto axis = static_cast<size_t>(std::countr_zero(axes));
    if (plain[axis] || index_[i] != ranges_[axis] || base_dims_[i] != dims_[axis]) {
      return std::nullopt;
    }
    plain[axis] = i;
  }
  return plain;
}

std::optional<WindowTaps::Tiling> WindowTaps::TilingOf(const Group& group) const {
  for (size_t row = 0; row < group.base.size(); ++row) {
    if (const std::optional<Tiling> tiling = Tiles(group, row)) return tiling;
  }
  return std::nullopt;
}

// `row` is where the windows' axis is in `base`.
std::optional<WindowTaps::Tiling> WindowTaps::Tiles(const Group& group, size_t row) const {
  if (group.elements.empty()) return std::nullopt;
  Tiling t;
  t.row = group.base[row];
  if (group.base.size() == 2) t.tap = group.base[1 - row];
  const int64_t places = dims_[*group.places];
  t.first = group.elements.front().place;
  t.stride = places - t.first;
  for (const Group::Element& e : group.elements) {
    const int64_t at = e.place - t.first, window = e.position[row];
    t.windows = std::max(t.windows, window + 1);
    if (window == 0) t.taps = at + 1;
    if (window == 1) t.stride = std::min(t.stride, at);
  }
  if (t.stride <= 0 || t.taps > t.stride) return std::nullopt;
  auto next = group.elements.begin();
  for (int64_t at = 0; at < places - t.first; ++at) {
    if (at / t.stride >= t.windows || at % t.stride >= t.taps) continue;
    if (next == group.elements.end() || next->place != at + t.first) return std::nullopt;
    if (next->position[row] != at / t.stride) return std::nullopt;
    if (t.tap && next->position[1 - row] != at % t.stride) return std::nullopt;
    ++next;
  }
  return next == group.elements.end() ? std::optional(t) : std::nullopt;
}

std::optional<WindowTaps::Sliding> WindowTaps::SlidingOf(const Group& group) const {
  for (size_t row = 0; row < group.base.size(); ++row) {
    if (const std::optional<Sliding> sliding = Slides(group, row)) return sliding;
  }
  return std::nullopt;
}

std::optional<WindowTaps::Sliding> WindowTaps::Slides(const Group& group, size_t row) const {
  if (group.elements.empty()) return std::nullopt;
  const Group::Element& any = group.elements.front();
  const int64_t k_of_any = any.tap - group.first, rows = base_dims_[group.base[row]];
  int64_t taps = group.count;
  Sliding s;
  s.row = group.base[row];
  s.count = group.count;
  if (group.base.size() == 2) {
    s.tap = group.base[1 - row];
    s.first_tap = any.position[1 - row] - k_of_any;
    taps = base_dims_[*s.tap];
  }
  for (const int64_t direction : {1, -1}) {
    s.direction = direction;
    s.offset = any.position[row] - any.place - direction * k_of_any;
    auto next = group.elements.begin();
    bool same = true;
    for (int64_t place = 0; same && place < dims_[*group.places]; ++place) {
      for (int64_t k = 0; same && k < s.count; ++k) {
        const int64_t at = place + k * direction + s.offset, tap = k + s.first_tap;
        if (at < 0 || at >= rows || tap < 0 || tap >= taps) continue;
        same = next != group.elements.end() && next->place == place &&
               next->tap == k + group.first && next->position[row] == at &&
               (!s.tap || next->position[1 - row] == tap);
        ++next;
      }
    }
    if (same && next == group.elements.end()) return s;
  }
  return std::nullopt;
}

}  // namespace telegrad
