// The fusion decision, consumers first. When a node is reached, everything that uses it has been
// decided, so it is known which kernels need it, at which positions, and how often each position is
// computed there, loops that its index does not depend on left out. Then one comparison decides:
// computing it again in every place, or once, with a store and a load in every place instead. A
// value that is stored is written by a kernel that computes all of it anyway, if there is one and
// no reader has to run before that, else by a kernel of its own. Kernels with the same loops that
// need the same large value at the same positions become one.
//
// A reduction is one value more. Hoisted out of the loops that it does not depend on it costs what
// it would cost alone, so it stays in its user's kernel unless that would take its parallelism or,
// if it is a sum of products, its register tile away.
//
// What a node costs depends on which of its sources are stored, which is decided later: a first
// guess is refined by planning again with what the plan before has stored.
#include "engine/schedule/fusion.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "engine/base/hash.h"
#include "engine/schedule/access.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/drafts.h"
#include "engine/schedule/nests.h"

namespace telegrad {
namespace {

constexpr int kRounds = 4;
constexpr size_t kMaxPlaces = 16;  // where one value is recomputed
constexpr int kMaxFolds = 4;       // reductions that one holds inside of each other
// Positions of nodes in a kernel. Bounds what the compiler is asked to do at once.
constexpr int64_t kMaxKernelNodes = 1000;
// A reduction of less work is not worth spreading over threads.
constexpr double kSmallWork = 32'768;
constexpr double kMinParallel = 16;
class Planner {
 public:
  Planner(UOp sink, const FusionOptions& options, Budget* budget)
      : graph_(*sink.graph()),
        size_(sink.id() + 1),
        options_(options),
        budget_(budget),
        held_(budget),
        drafts_(graph_, options) {
    plan_.order = PostOrder(sink);
    CountUses();
  }

  absl::StatusOr<FusionPlan> Run() && {
    TG_RETURN_IF_ERROR(held_.Grow(size_ * kBytesPerNode));
    stored_ = FirstGuess();
    for (int round = 0; round < kRounds; ++round) {
      TG_RETURN_IF_ERROR(PlanOnce());
      std::vector<bool> stored(size_);
      for (uint32_t id : plan_.order) stored[id] = plan_.materialized(id);
      if (stored == stored_) break;
      stored_ = std::move(stored);
    }
    plan_.level.resize(size_);
    for (uint32_t id : plan_.order) plan_.level[id] = costs_[id].level;
    EmitKernels();
    return std::move(plan_);
  }

 private:
  void CountUses() {
    uses_.assign(size_, 0);
    last_user_.assign(size_, 0);
    for (uint32_t id : plan_.order) {
      for (uint32_t s : graph_.src(id)) {
        ++uses_[s];
        last_user_[s] = id;
      }
    }
  }

  // A sum of products joins its only user as long as that keeps its elements.
  std::vector<bool> FirstGuess() const {
    std::vector<bool> stored(size_, false), holds(size_, false);
    for (uint32_t id : plan_.order) {
      const Op op = graph_.op(id);
      if (op == Op::kContiguous || op == Op::kScatter) stored[id] = true;
      for (uint32_t s : graph_.src(id)) holds[id] = holds[id] || (holds[s] && !stored[s]);
      if (op == Op::kReduce && IsContraction(graph_.at(id))) holds[id] = true;
      if (!holds[id] || Is(op, kEffect) || op == Op::kAfter) continue;
      const Op user = graph_.op(last_user_[id]);
      const bool joins = uses_[id] == 1 && (Is(user, kAlu) || Is(user, kMovement) ||
                                            user == Op::kStore || user == Op::kDetach);
      if (!joins && !Is(op, kMovement)) stored[id] = true;
    }
    return stored;
  }

  absl::Status PlanOnce() {
    costs_ = EstimateCosts(graph_, plan_.order, stored_);
    drafts_.clear();
    plan_.decision.assign(size_, Materialize::kFused);
    plan_.aliases.clear();
    places_.assign(size_, {});
    readers_.clear();
    stored_values_.clear();
    for (auto it = plan_.order.rbegin(); it != plan_.order.rend(); ++it) {
      TG_RETURN_IF_ERROR(Visit(*it));
      places_[*it] = {};
    }
    return absl::OkStatus();
  }

  absl::Status Visit(uint32_t id) {
    const Op op = graph_.op(id);
    const UOp u = graph_.at(id);
    TG_RETURN_IF_ERROR(budget_->SpendSteps(
        1 + static_cast<int64_t>(graph_.src(id).size() * (1 + places_[id].size()))));
    if (op == Op::kStore) {
      VisitStore(u);
      return absl::OkStatus();
    }
    std::vector<Place>& places = places_[id];
    if (op == Op::kSink || places.empty()) return absl::OkStatus();
    if (op == Op::kAfter) {
      NoteOperand(id, places);
      for (const Place& p : places) {
        for (int i = 1; i < u.num_src(); ++i) readers_[u.src(i).id()].push_back(p.draft);
      }
      return absl::OkStatus();
    }
    MergeKernels(id, &places);
    if (op == Op::kParam) NoteOperand(id, places);
    if (op == Op::kParam || op == Op::kConst || op == Op::kIota) return absl::OkStatus();
    if (op == Op::kScatter) {
      VisitScatter(u, places);
      return absl::OkStatus();
    }
    std::string why;
    const Materialize decision = Choose(u, places, &why);
    plan_.decision[id] = decision;
    if (decision == Materialize::kFused) {
      for (const Place& p : places) AddSources(u, p);
    } else {
      Store(u, places, std::move(why));
    }
    return absl::OkStatus();
  }

  void AddPlace(uint32_t node, Place place) {
    if (NumElements(graph_.shape(node)) == 0) return;
    place.draft = drafts_.Find(place.draft);
    if (graph_.shape(node).empty()) place.access.axes.clear();
    for (Place& p : places_[node]) {
      if (drafts_.Find(p.draft) == place.draft && p.access == place.access) {
        p.tiled = p.tiled && place.tiled;
        p.folds = std::max(p.folds, place.folds);
        return;
      }
    }
    ++drafts_[place.draft].nodes;
    places_[node].push_back(std::move(place));
  }

  // --- merging ----------------------------------------------------------------------------------

  void MergeKernels(uint32_t id, std::vector<Place>* places) {
    const auto elements = static_cast<double>(NumElements(graph_.shape(id)));
    for (size_t i = 0; i < places->size(); ++i) {
      for (size_t j = i + 1; j < places->size(); ++j) {
        Place &a = (*places)[i], &b = (*places)[j];
        a.draft = drafts_.Find(a.draft);
        b.draft = drafts_.Find(b.draft);
        if (a.draft == b.draft || a.access.axes != b.access.axes) continue;
        drafts_.TryMerge(a.draft, b.draft, elements, a.access.ranges());
      }
    }
    for (size_t i = 0; i < places->size(); ++i) {
      (*places)[i].draft = drafts_.Find((*places)[i].draft);
      for (size_t j = i + 1; j < places->size();) {
        Place &a = (*places)[i], &b = (*places)[j];
        if (a.draft == drafts_.Find(b.draft) && a.access == b.access) {
          a.tiled = a.tiled && b.tiled;
          a.folds = std::max(a.folds, b.folds);
          places->erase(places->begin() + static_cast<std::ptrdiff_t>(j));
        } else {
          ++j;
        }
      }
    }
  }

  // --- decisions --------------------------------------------------------------------------------

  Materialize Choose(UOp u, const std::vector<Place>& places, std::string* why) const {
    const uint32_t id = u.id();
    if (u.is(Op::kContiguous)) {
      if (places.size() == 1 && Home(u, places) >= 0) return Materialize::kFused;
      *why = "stored on request";
      return Materialize::kRequested;
    }
    // A view is stored through its source.
    if (Is(u.op(), kMovement) || u.is(Op::kDetach)) return Materialize::kFused;
    for (const Place& p : places) {
      const Draft& draft = drafts_[p.draft];
      const size_t folds = u.is(Op::kReduce) ? u.arg().size() - 1 : 0;
      const bool many = folds > 0 && draft.loops + draft.folds + folds > Drafts::kMaxRanges;
      const bool deep = folds > 0 && p.folds >= kMaxFolds;
      if (draft.nodes > kMaxKernelNodes || many || deep) {
        *why = StrCat("stored: its user's kernel has ", draft.nodes, " nodes and ",
                      draft.loops + draft.folds, " ranges already");
        return Materialize::kSize;
      }
    }
    const auto elements = static_cast<double>(NumElements(u.shape()));
    // What repeats or pads the result of a sum of products is stored through that.
    const NodeCost& cost = costs_[id];
    if (cost.contraction != 0 && cost.contraction_elements < elements &&
        places.size() <= kMaxPlaces) {
      return Materialize::kFused;
    }
    for (const Place& p : places) {
      if (!Fits(u, p, why)) return Materialize::kReduction;
    }
    double computed = 0, loaded = 0;
    for (const Place& p : places) {
      const double count = drafts_[p.draft].Count(p.access.ranges());
      const double reuse = p.tiled ? kTileReuse : 1;
      loaded += count / reuse;
      computed += std::max(std::min(count, elements), count / reuse);
    }
    if (computed <= elements) return Materialize::kFused;
    const double work = costs_[id].work;
    const auto bytes = static_cast<double>(BytesOf(u.dtype(), 1));
    const double redone = (computed - elements) * work;
    const double moved = bytes * (elements * kStoreCostPerByte + loaded * kLoadCostPerByte);
    const double launch = Home(u, places) >= 0 ? 0 : kLaunchCost;
    if (redone <= moved + launch && places.size() <= kMaxPlaces) return Materialize::kFused;
    *why = StrCat("stored: ", places.size(), places.size() == 1 ? " use computes" : " uses compute",
                  " it ", Ratio(computed / elements), " times; redoing that costs ", Scaled(redone),
                  " operations, memory ", Scaled(moved + launch));
    return Materialize::kCost;
  }

  static std::string Ratio(double x) {
    return StrCat(std::min(x, 1e9) < 10 ? std::round(x * 10) / 10 : std::round(std::min(x, 1e9)));
  }
  static std::string Scaled(double x) {
    static constexpr std::string_view kUnits[] = {"", "k", "M", "G", "T"};
    size_t unit = 0;
    for (; x >= 1000 && unit + 1 < std::size(kUnits); x /= 1000) ++unit;
    return StrCat(std::round(x * 10) / 10, kUnits[unit]);
  }

  // Whether the reductions that `u` holds may run where the kernel needs it.
  bool Fits(UOp u, const Place& p, std::string* why) const {
    const NodeCost& cost = costs_[u.id()];
    const Draft& draft = drafts_[p.draft];
    const RangeSet set = p.access.ranges(), loops = set & draft.LoopSet();
    const bool folded = (set & ~draft.LoopSet()) != 0;
    if (cost.contraction != 0 && (folded || loops != draft.LoopSet())) {
      const auto elements = static_cast<double>(NumElements(u.shape()));
      if (elements * cost.work > kSmallWork) {
        *why = folded ? "stored: its sum of products would run inside another reduction"
                      : "stored: its sum of products would lose its tile to other loops";
        return false;
      }
    }
    if (!u.is(Op::kReduce)) return true;
    for (RangeSet front : draft.fronts) {
      if ((loops & ~front) != 0 && (front & ~loops) != 0) {
        *why = "stored: no order of its user's loops suits all of its reductions";
        return false;
      }
    }
    const bool serial = draft.Product(loops) < kMinParallel && (folded || loops != draft.LoopSet());
    if (serial && draft.Count(set) * cost.work > kSmallWork) {
      *why = "stored: inside its user too few threads could share it";
      return false;
    }
    return true;
  }

  // A kernel that computes all of `u`, each element once, in its loops, and that no other reader
  // has to precede; -1: there is none.
  int Home(UOp u, const std::vector<Place>& places) const {
    if (options_.alone.contains(u.id())) return -1;
    for (const Place& p : places) {
      const Draft& draft = drafts_[p.draft];
      const auto same = [&](const Place& q) { return q.draft == p.draft; };
      if (drafts_.Alone(draft) || draft.roots.size() >= Drafts::kMaxRoots) continue;
      if (std::ranges::count_if(places, same) != 1 || p.access.gate != 0) continue;
      if (p.access.ranges() != draft.LoopSet() || p.access != LoopAccess(u.shape())) continue;
      if (!SameLoops(draft, u.shape())) continue;
      const bool first = std::ranges::none_of(places, [&](const Place& q) {
        return q.draft != p.draft && drafts_.HasPath(q.draft, p.draft);
      });
      if (first) return p.draft;
    }
    return -1;
  }

  static bool SameLoops(const Draft& draft, ShapeView shape) {
    int loop = 0;
    for (int64_t n : shape) {
      if (n == 1) continue;
      if (loop >= draft.loops || draft.ranges[loop].size != static_cast<double>(n)) return false;
      ++loop;
    }
    return loop == draft.loops;
  }

  void Store(UOp u, const std::vector<Place>& places, std::string why) {
    const int home = Home(u, places);
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
    for (const Place& p : places) drafts_.AddEdge(draft, p.draft);
    NoteOperand(u.id(), places);
    stored_values_.push_back({u.id(), draft, places});
    AddSources(u, {draft, LoopAccess(u.shape()), false});
  }

  // What a sum of products reads from memory.
  void NoteOperand(uint32_t id, const std::vector<Place>& places) {
    const int64_t elements = NumElements(graph_.shape(id));
    if (elements == 1) return;
    const auto bytes = static_cast<double>(BytesOf(graph_.dtype(id), elements));
    for (const Place& p : places) {
      Draft& draft = drafts_[p.draft];
      for (int loop = 0; p.tiled && loop < draft.loops; ++loop) {
        if ((p.access.ranges() >> loop & 1) == 0) draft.reread[loop] += bytes;
      }
    }
  }

  // A STORE of `u` that is a root of the draft and the whole of a PARAM that nothing else touches;
  // 0: there is none.
  uint32_t WholeOutput(UOp u, const Draft& draft) const {
    for (uint32_t root : draft.roots) {
      UOp target = graph_.at(root);
      if (!target.is(Op::kStore)) continue;
      UOp value = target.src(1);
      target = target.src(0);
      // A SCATTER writes by row-major position: other dims are as good.
      while (u.is(Op::kScatter) && value.is(Op::kReshape)) value = value.src(0);
      bool whole = value == u && NumElements(target.shape()) == NumElements(u.shape());
      while (whole && u.is(Op::kScatter) && target.is(Op::kReshape)) {
        whole = uses_[target.id()] == 1;
        target = target.src(0);
      }
      const bool same = u.is(Op::kScatter) || std::ranges::equal(target.shape(), u.shape());
      if (whole && same && target.is(Op::kParam) && uses_[target.id()] == 1) return root;
    }
    return 0;
  }

  // --- sources ----------------------------------------------------------------------------------

  void AddSources(UOp u, const Place& p) {
    const Access& access = p.access;
    switch (u.op()) {
      case Op::kReduce:
        AddPlace(u.src(0).id(), BelowReduce(u, p));
        return;
      case Op::kGather: {
        const size_t rank = u.src(1).shape().size();
        Place index = p, rows = p;
        index.access.axes.assign(access.axes.begin(),
                                 access.axes.begin() + static_cast<std::ptrdiff_t>(rank));
        AxisUse row{Mix64(u.src(1).id(), index.access.Hash()) | 1, index.access.ranges()};
        rows.access.axes.clear();
        rows.access.axes.push_back(row);
        rows.access.axes.insert(rows.access.axes.end(),
                                access.axes.begin() + static_cast<std::ptrdiff_t>(rank),
                                access.axes.end());
        AddPlace(u.src(1).id(), std::move(index));
        AddPlace(u.src(0).id(), std::move(rows));
        return;
      }
      case Op::kCat: {
        const auto axis = static_cast<size_t>(u.arg(0));
        for (int i = 0; i < u.num_src(); ++i) {
          Place part = p;
          part.access.axes[axis].hash =
              Mix64(part.access.axes[axis].hash, static_cast<uint64_t>(i));
          if (u.src(i).shape()[axis] == 1) part.access.axes[axis] = {};
          part.access.gate = Mix64(part.access.gate, static_cast<uint64_t>(i)) | 1;
          AddPlace(u.src(i).id(), std::move(part));
        }
        return;
      }
      default:
        break;
    }
    if (Is(u.op(), kMovement)) {
      AddPlace(u.src(0).id(), {p.draft, AccessSource(u, access), p.tiled, p.folds});
      return;
    }
    for (int i = 0; i < u.num_src(); ++i) AddPlace(u.src(i).id(), p);
  }

  Place BelowReduce(UOp u, const Place& p) {
    Draft& draft = drafts_[p.draft];
    const RangeSet set = p.access.ranges(), loops = set & draft.LoopSet();
    if (loops != draft.LoopSet() && std::ranges::find(draft.fronts, loops) == draft.fronts.end()) {
      draft.fronts.push_back(loops);
      draft.reasons.push_back(StrCat("folds ", FoldedExtent(u), " elements once for each of ",
                                     draft.Product(loops), " iterations of its outer loops"));
    }
    RangeSet around = set;
    for (RangeSet folded = set & ~draft.LoopSet(); folded != 0; folded &= folded - 1) {
      around |= draft.ranges[std::countr_zero(folded)].around;
    }
    Place below = p;
    below.tiled = p.tiled || IsContraction(u);
    ++below.folds;
    uint64_t all = Mix64(p.access.Hash(), costs_[u.id()].level);
    for (int64_t axis : u.arg().subspan(1)) {
      all = Mix64(Mix64(all, static_cast<uint64_t>(axis)),
                  static_cast<uint64_t>(u.src(0).shape()[axis]));
    }
    for (int64_t axis : u.arg().subspan(1)) {
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

  void VisitStore(UOp store) {
    const UOp target = store.src(0), value = store.src(1);
    if (NumElements(target.shape()) == 0) return;
    const int draft = drafts_.Add(target.shape(), store.id(), costs_[store.id()].contraction);
    drafts_[draft].reasons.push_back(StrCat("writes slot ", *drafts_.SlotOf(store.id())));
    if (const auto it = readers_.find(store.id()); it != readers_.end()) {
      for (int reader : it->second) drafts_.AddEdge(draft, reader);
    }
    AddPlace(value.id(), {draft, LoopAccess(target.shape()), false});
  }

  void VisitScatter(UOp scatter, const std::vector<Place>& places) {
    plan_.decision[scatter.id()] = Materialize::kScatter;
    const int base = drafts_.Add(scatter.shape(), scatter.id(), costs_[scatter.id()].contraction);
    drafts_[base].closed = true;
    drafts_[base].reasons.emplace_back("scatters rows into a copy of its base");
    AddPlace(scatter.src(0).id(), {base, LoopAccess(scatter.shape()), false});
    const UOp index = scatter.src(1), rows = scatter.src(2);
    const int update = drafts_.Add(rows.shape(), scatter.id(), costs_[scatter.id()].contraction);
    drafts_[update].closed = true;
    drafts_[update].roots.clear();  // the scheduler makes both kernels of the one root
    const Access at = LoopAccess(rows.shape());
    Access index_at;
    index_at.axes.assign(at.axes.begin(),
                         at.axes.begin() + static_cast<std::ptrdiff_t>(index.shape().size()));
    AddPlace(index.id(), {update, std::move(index_at), false});
    AddPlace(rows.id(), {update, at, false});
    drafts_.AddEdge(base, update);
    for (const Place& p : places) {
      // Rows that go to a whole output go there at once.
      Draft& draft = drafts_[p.draft];
      const uint32_t output = draft.roots.size() == 1 ? WholeOutput(scatter, draft) : 0;
      if (output == 0 || plan_.aliases.contains(scatter.id())) {
        drafts_.AddEdge(update, p.draft);
        continue;
      }
      plan_.aliases.emplace(scatter.id(), output);
      draft.roots.clear();
      draft.merged_into = update;
      for (int after : draft.after) drafts_.AddEdge(update, after);
    }
  }

  void EmitKernels() {
    for (const NestGroup& group : JoinNests(graph_, drafts_, stored_values_)) {
      PlannedKernel kernel;
      for (int d : group.drafts) {
        Draft& draft = drafts_[d];
        if (draft.merged_into >= 0 || draft.roots.empty()) continue;
        std::ranges::sort(draft.roots);
        kernel.nests.push_back({std::move(draft.roots)});
        std::ranges::move(draft.reasons, std::back_inserter(kernel.reasons));
      }
      if (kernel.nests.empty()) continue;
      if (kernel.nests.size() > 1) {
        kernel.shared_loops = group.shared;
        kernel.shared_tile = group.tile;
        kernel.reasons.push_back(StrCat(kernel.nests.size(), " nests inside of ", group.shared,
                                        group.shared == 1 ? " loop" : " loops"));
      }
      plan_.kernels.push_back(std::move(kernel));
    }
    std::ranges::sort(plan_.kernels, {},
                      [](const PlannedKernel& k) { return k.nests.back().roots.back(); });
  }

  // Of the tables below, without the places and drafts.
  static constexpr int64_t kBytesPerNode = 120;

  const Graph& graph_;
  const uint32_t size_;
  const FusionOptions& options_;
  Budget* budget_;
  Budget::Held held_;
  FusionPlan plan_;
  std::vector<int> uses_;
  std::vector<uint32_t> last_user_;
  std::vector<bool> stored_;  // by the plan before
  std::vector<NodeCost> costs_;
  Drafts drafts_;
  std::vector<std::vector<Place>> places_;                   // of the nodes not visited yet
  absl::flat_hash_map<uint32_t, std::vector<int>> readers_;  // of what a STORE has written
  std::vector<StoredValue> stored_values_;
};

}  // namespace

std::string_view Name(Materialize reason) {
  switch (reason) {
    case Materialize::kFused:
      return "fused into its users";
    case Materialize::kRequested:
      return "stored on request";
    case Materialize::kReduction:
      return "stored: its reduction does not fit into its users' loops";
    case Materialize::kSize:
      return "stored: the kernel would grow too large";
    case Materialize::kCost:
      return "stored: recomputing costs more";
    case Materialize::kScatter:
      return "scatters rows";
  }
  return "";
}

absl::StatusOr<FusionPlan> PlanFusion(UOp sink, const FusionOptions& options, Budget* budget) {
  return Planner(sink, options, budget).Run();
}

}  // namespace telegrad
