// Which kernels need a value, at which positions. What a node reads is needed where the node is, at
// the positions that it says; what is stored is needed by the kernel that writes it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "engine/base/hash.h"
#include "engine/schedule/fusion_planner.h"

namespace telegrad {

namespace {

// Places that one is compared with: each pair may look for a path between two kernels.
constexpr size_t kMaxPartners = 32;

}  // namespace

void FusionPlanner::AddUse(uint32_t node, KernelUse use) {
  if (NumElements(graph_.shape(node)) == 0) return;
  use.draft = drafts_.Find(use.draft);
  if (graph_.shape(node).empty()) use.access.axes.clear();
  for (KernelUse& known : kernel_uses_[node]) {
    if (drafts_.Find(known.draft) == use.draft && known.access == use.access) {
      known.tiled = known.tiled && use.tiled;
      known.folds = std::max(known.folds, use.folds);
      known.places = known.places && use.places;
      return;
    }
  }
  ++drafts_[use.draft].nodes;
  kernel_uses_[node].push_back(std::move(use));
}

void FusionPlanner::MergeKernels(uint32_t id, std::vector<KernelUse>* uses) {
  const auto elements = static_cast<double>(NumElements(graph_.shape(id)));
  for (size_t i = 0; i < uses->size(); ++i) {
    for (size_t j = i + 1; j < std::min(uses->size(), i + kMaxPartners); ++j) {
      KernelUse &a = (*uses)[i], &b = (*uses)[j];
      a.draft = drafts_.Find(a.draft);
      b.draft = drafts_.Find(b.draft);
      if (a.draft == b.draft || a.access.axes != b.access.axes) continue;
      drafts_.TryMerge(a.draft, b.draft, elements, a.access.ranges());
    }
  }
  for (size_t i = 0; i < uses->size(); ++i) {
    (*uses)[i].draft = drafts_.Find((*uses)[i].draft);
    for (size_t j = i + 1; j < uses->size();) {
      KernelUse &a = (*uses)[i], &b = (*uses)[j];
      if (a.draft == drafts_.Find(b.draft) && a.access == b.access) {
        a.tiled = a.tiled && b.tiled;
        a.folds = std::max(a.folds, b.folds);
        a.places = a.places && b.places;
        uses->erase(uses->begin() + static_cast<std::ptrdiff_t>(j));
      } else {
        ++j;
      }
    }
  }
}

void FusionPlanner::Store(UOp u, const std::vector<KernelUse>& uses, std::string why) {
  const int home = Home(u, uses);
  int draft = home;
  if (home < 0) {
    draft = drafts_.Add(u.shape(), u.id(), costs_[u.id()].contraction);
    drafts_[draft].reasons.push_back(std::move(why));
  } else if (const uint32_t output = WholeOutput(u, drafts_[home]); output != 0) {
    plan_.aliases.emplace(u.id(), output);
  } else {
    drafts_[home].roots.push_back(u.id());
    drafts_[home].reasons.push_back(StrCat("also keeps a value that is ", why));
  }
  for (const KernelUse& use : uses) drafts_.AddEdge(draft, use.draft);
  NoteOperand(u.id(), uses);
  stored_values_.push_back({u.id(), draft, uses});
  AddSources(u, {draft, LoopAccess(u.shape()), false});
}

void FusionPlanner::NoteOperand(uint32_t id, const std::vector<KernelUse>& uses) {
  const int64_t elements = NumElements(graph_.shape(id));
  if (elements == 1) return;
  const auto bytes = static_cast<double>(BytesOf(graph_.dtype(id), elements));
  for (const KernelUse& use : uses) {
    Draft& draft = drafts_[use.draft];
    if (!use.tiled || use.places) continue;
    draft.operands.push_back({use.access.ranges(), bytes});
    for (int loop = 0; loop < draft.loops; ++loop) {
      const double times = TimesRead(draft, use.access, graph_.shape(id), loop);
      if (times >= static_cast<double>(options_.costs.tile) / 2) draft.reread[loop] += bytes;
    }
  }
}

// How many iterations of the loop read an element, on average: all where the access does not depend
// on it, and as many as a group has outputs where the groups of a convolution are a part of it.
double FusionPlanner::TimesRead(const Draft& draft, const Access& access, ShapeView shape,
                                int loop) {
  const double size = draft.ranges[loop].size;
  const RangeSet one = RangeSet{1} << loop;
  if ((access.ranges() & one) == 0) return HUGE_VAL;
  double elements = 1, touched = 1;  // in an iteration, at most
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const auto extent = static_cast<double>(shape[axis]);
    elements *= extent;
    touched *= std::min(extent, draft.Product(access.axes[axis].ranges & ~one));
  }
  return size * touched / elements;
}

void FusionPlanner::AddSources(UOp u, const KernelUse& use) {
  const Access& access = use.access;
  switch (u.op()) {
    case Op::kReduce:
      AddUse(u.src(0).id(), BelowReduce(u, use));
      return;
    case Op::kGather: {
      const size_t rank = u.src(1).shape().size();
      KernelUse index = use, rows = use;
      index.places = true;
      index.access.axes.assign(access.axes.begin(),
                               access.axes.begin() + static_cast<std::ptrdiff_t>(rank));
      AxisUse row{Mix64(u.src(1).id(), index.access.Hash()) | 1, index.access.ranges()};
      rows.access.axes.clear();
      rows.access.axes.push_back(row);
      rows.access.axes.insert(rows.access.axes.end(),
                              access.axes.begin() + static_cast<std::ptrdiff_t>(rank),
                              access.axes.end());
      AddUse(u.src(1).id(), std::move(index));
      AddUse(u.src(0).id(), std::move(rows));
      return;
    }
    case Op::kCat: {
      const auto axis = static_cast<size_t>(u.axis());
      for (int i = 0; i < u.num_src(); ++i) {
        KernelUse part = use;
        part.access.axes[axis].hash = Mix64(part.access.axes[axis].hash, static_cast<uint64_t>(i));
        if (u.src(i).shape()[axis] == 1) part.access.axes[axis] = {};
        part.access.gate = Mix64(part.access.gate, static_cast<uint64_t>(i)) | 1;
        AddUse(u.src(i).id(), std::move(part));
      }
      return;
    }
    default:
      break;
  }
  if (Is(u.op(), kMovement)) {
    AddUse(u.src(0).id(), {use.draft, AccessSource(u, access), use.tiled, use.folds, use.places});
    return;
  }
  for (int i = 0; i < u.num_src(); ++i) AddUse(u.src(i).id(), use);
}

KernelUse FusionPlanner::BelowReduce(UOp u, const KernelUse& use) {
  Draft& draft = drafts_[use.draft];
  const RangeSet set = use.access.ranges(), loops = set & draft.LoopSet();
  if (loops != draft.LoopSet() && std::ranges::find(draft.fronts, loops) == draft.fronts.end()) {
    draft.fronts.push_back(loops);
    draft.reasons.push_back(StrCat("reduces ", FoldedExtent(u), " elements once for each of ",
                                   draft.Product(loops), " iterations of its outer loops"));
  }
  if (draft.product == 0 && IsMatrixProduct(u, options_.costs.tile)) draft.product = u.id();
  RangeSet around = set;
  for (RangeSet folded = set & ~draft.LoopSet(); folded != 0; folded &= folded - 1) {
    around |= draft.ranges[std::countr_zero(folded)].around;
  }
  KernelUse below = use;
  below.tiled = use.tiled || IsContraction(u);
  ++below.folds;
  uint64_t all = Mix64(use.access.Hash(), costs_[u.id()].level);
  for (int64_t axis : u.reduced_axes()) {
    all = Mix64(Mix64(all, static_cast<uint64_t>(axis)),
                static_cast<uint64_t>(u.src(0).shape()[axis]));
  }
  for (int64_t axis : u.reduced_axes()) {
    const int64_t size = u.src(0).shape()[axis];
    if (size == 1) continue;
    const uint64_t hash = Mix64(all, static_cast<uint64_t>(axis)) | 1;
    auto it = std::ranges::find(draft.ranges, hash, &Draft::Range::hash);
    if (it == draft.ranges.end()) {
      draft.ranges.push_back({static_cast<double>(size), hash, around});
      it = std::prev(draft.ranges.end());
    }
    below.access.axes[axis] = {hash, RangeSet{1} << (it - draft.ranges.begin())};
    ++draft.folds;
  }
  return below;
}

void FusionPlanner::VisitStore(UOp store) {
  const UOp target = store.src(0), value = store.src(1);
  if (NumElements(target.shape()) == 0) return;
  const int draft = drafts_.Add(target.shape(), store.id(), costs_[store.id()].contraction);
  drafts_[draft].reasons.push_back(StrCat("writes slot ", *drafts_.SlotOf(store.id())));
  if (const auto it = readers_.find(store.id()); it != readers_.end()) {
    for (int reader : it->second) drafts_.AddEdge(draft, reader);
  }
  AddUse(value.id(), {draft, LoopAccess(target.shape()), false});
}

void FusionPlanner::VisitScatter(UOp scatter, const std::vector<KernelUse>& uses) {
  plan_.decision[scatter.id()] = Materialize::kScatter;
  const int base = drafts_.Add(scatter.shape(), scatter.id(), costs_[scatter.id()].contraction);
  drafts_[base].closed = true;
  drafts_[base].reasons.emplace_back("scatters rows into a copy of its base");
  AddUse(scatter.src(0).id(), {base, LoopAccess(scatter.shape()), false});
  const UOp index = scatter.src(1), rows = scatter.src(2);
  const int update = drafts_.Add(rows.shape(), scatter.id(), costs_[scatter.id()].contraction);
  drafts_[update].closed = true;
  drafts_[update].roots.clear();  // the scheduler makes both kernels of the one root
  const Access at = LoopAccess(rows.shape());
  Access index_at;
  index_at.axes.assign(at.axes.begin(),
                       at.axes.begin() + static_cast<std::ptrdiff_t>(index.shape().size()));
  AddUse(index.id(), {update, std::move(index_at), false});
  AddUse(rows.id(), {update, at, false});
  drafts_.AddEdge(base, update);
  for (const KernelUse& use : uses) {
    // Rows that go to a whole output go there at once.
    Draft& draft = drafts_[use.draft];
    const uint32_t output = draft.roots.size() == 1 ? WholeOutput(scatter, draft) : 0;
    if (output == 0 || plan_.aliases.contains(scatter.id())) {
      drafts_.AddEdge(update, use.draft);
      continue;
    }
    plan_.aliases.emplace(scatter.id(), output);
    draft.roots.clear();
    draft.merged_into = update;
    for (int after : draft.after) drafts_.AddEdge(update, after);
  }
}

}  // namespace telegrad
