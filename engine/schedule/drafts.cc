#include "engine/schedule/drafts.h"

#include <algorithm>

#include "engine/base/hash.h"
#include "engine/schedule/cost.h"

namespace telegrad {

double Draft::Count(RangeSet set) const {
  RangeSet all = set;
  for (RangeSet folded = set & ~LoopSet(); folded != 0; folded &= folded - 1) {
    all |= ranges[std::countr_zero(folded)].around;
  }
  const RangeSet loops = all & LoopSet();
  RangeSet around = loops == 0 ? 0 : (RangeSet{2} << (63 - std::countl_zero(loops))) - 1;
  for (RangeSet front : fronts) {
    if ((loops & ~front) == 0 && Product(front) < Product(around)) around = front;
  }
  return Product(around | (all & ~LoopSet()));
}

Access LoopAccess(ShapeView shape) {
  uint64_t all = 0;
  for (int64_t n : shape) all = n == 1 ? all : Mix64(all, static_cast<uint64_t>(n));
  Access access;
  int loop = 0;
  for (int64_t n : shape) {
    AxisUse use;
    if (n != 1) {
      use = {Mix64(all, static_cast<uint64_t>(loop)) | 1, RangeSet{1} << loop};
      ++loop;
    }
    access.axes.push_back(use);
  }
  return access;
}

int Drafts::Add(ShapeView shape, uint32_t root, uint32_t contraction) {
  Draft draft;
  const Access loops = LoopAccess(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) draft.ranges.push_back({static_cast<double>(shape[i]), loops.axes[i].hash});
  }
  draft.loops = static_cast<int>(draft.ranges.size());
  draft.reread.assign(draft.ranges.size(), 0);
  draft.roots.push_back(root);
  draft.contraction = contraction;
  drafts_.push_back(std::move(draft));
  return static_cast<int>(drafts_.size()) - 1;
}

int Drafts::Find(int draft) const {
  while (drafts_[draft].merged_into >= 0) draft = drafts_[draft].merged_into;
  return draft;
}

void Drafts::AddEdge(int from, int to) {
  if (Find(from) != Find(to)) drafts_[Find(from)].after.push_back(Find(to));
}

bool Drafts::HasPath(int from, int to) const {
  stack_.assign(1, Find(from));
  seen_.resize(drafts_.size());
  ++walks_;
  size_t seen = 0;
  to = Find(to);
  while (!stack_.empty()) {
    const int draft = stack_.back();
    stack_.pop_back();
    if (draft == to || seen > kMaxWalk) return true;
    for (int next : drafts_[draft].after) {
      const int d = Find(next);
      if (seen_[d] == walks_) continue;
      seen_[d] = walks_;
      ++seen;
      stack_.push_back(d);
    }
  }
  return false;
}

bool Drafts::Alone(const Draft& draft) const {
  return draft.closed || std::ranges::any_of(draft.roots, [&](uint32_t root) {
           return options_.alone.contains(root);
         });
}

bool Drafts::Apart(const Draft& draft) const {
  return std::ranges::any_of(draft.roots,
                             [&](uint32_t root) { return options_.apart.contains(root); });
}

std::optional<int64_t> Drafts::SlotOf(uint32_t root) const {
  if (graph_.op(root) != Op::kStore) return std::nullopt;
  uint32_t target = graph_.src(root)[0];
  while (graph_.op(target) != Op::kParam) target = graph_.src(target)[0];
  return graph_.at(target).slot();
}

bool Drafts::WritesSameSlot(const Draft& a, const Draft& b) const {
  for (uint32_t x : a.roots) {
    for (uint32_t y : b.roots) {
      if (const auto slot = SlotOf(x); slot.has_value() && slot == SlotOf(y)) return true;
    }
  }
  return false;
}

void Drafts::TryMerge(int x, int y, double elements, RangeSet shared) {
  Draft &a = drafts_[x], &b = drafts_[y];
  if (Alone(a) || Alone(b) || Apart(a) || Apart(b) || a.loops != b.loops) return;
  if (a.roots.size() + b.roots.size() > kMaxRoots || a.nodes + b.nodes > kMaxMergedNodes) return;
  if (a.contraction != 0 && b.contraction != 0 &&
      (a.contraction != b.contraction || a.contraction == kSeveral)) {
    return;
  }
  Draft& larger = a.ranges.size() >= b.ranges.size() ? a : b;
  Draft& smaller = &larger == &a ? b : a;
  for (size_t i = 0; i < smaller.ranges.size(); ++i) {
    if (smaller.ranges[i].hash != larger.ranges[i].hash ||
        smaller.ranges[i].size != larger.ranges[i].size) {
      return;
    }
  }
  const double loops = larger.Product(larger.LoopSet());
  if (elements * 2 < loops) return;
  // Two that reduce stream over the same elements, or they stay apart.
  if (larger.ranges.size() > static_cast<size_t>(larger.loops) &&
      shared != (RangeSet{1} << larger.ranges.size()) - 1) {
    return;
  }
  for (RangeSet f : a.fronts) {
    for (RangeSet g : b.fronts) {
      if ((f & ~g) != 0 && (g & ~f) != 0) return;
    }
  }
  if (WritesSameSlot(a, b) || HasPath(x, y) || HasPath(y, x)) return;
  const int into = &larger == &a ? x : y;
  larger.reasons.push_back(
      StrCat("writes ", a.roots.size() + b.roots.size(), " results that share loads"));
  larger.roots.insert(larger.roots.end(), smaller.roots.begin(), smaller.roots.end());
  larger.reasons.insert(larger.reasons.end(), smaller.reasons.begin(), smaller.reasons.end());
  larger.fronts.insert(larger.fronts.end(), smaller.fronts.begin(), smaller.fronts.end());
  larger.after.insert(larger.after.end(), smaller.after.begin(), smaller.after.end());
  for (int i = 0; i < larger.loops; ++i) larger.reread[i] += smaller.reread[i];
  larger.operands.insert(larger.operands.end(), smaller.operands.begin(), smaller.operands.end());
  larger.nodes += smaller.nodes;
  larger.folds += smaller.folds;
  if (larger.contraction == 0) larger.contraction = smaller.contraction;
  if (larger.product == 0) larger.product = smaller.product;
  smaller.merged_into = into;
  smaller.roots.clear();
}

}  // namespace telegrad
