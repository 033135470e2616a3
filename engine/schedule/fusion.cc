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
// At last, kernels that follow each other become nests of one where each iteration of their common
// outer loops only needs what that iteration itself has stored: a launch less, and the slice is
// still in the cache. Scores, softmax and weighted sum of an attention are one kernel for each
// head.
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

namespace telegrad {
namespace {

constexpr int kRounds = 4;
constexpr size_t kMaxPlaces = 16;  // where one value is recomputed
constexpr size_t kMaxRoots = 6;    // of a kernel
// Loops and folded ranges of a kernel; lowering splits each into up to four.
constexpr size_t kMaxRanges = 14;
constexpr int kMaxFolds = 4;  // reductions that one holds inside of each other
// Positions of nodes in a kernel. Bounds what the compiler is asked to do at once.
constexpr int64_t kMaxKernelNodes = 1000;
constexpr int64_t kMaxMergedNodes = 400;
// Kernels looked at to find out which of two comes first.
constexpr size_t kMaxWalk = 1024;
// A reduction of less work is not worth spreading over threads.
constexpr double kSmallWork = 32'768;
constexpr double kMinParallel = 16;
// Nests of one kernel: iterations of the loops that they share, and bytes that pass between them in
// one.
constexpr double kMinShared = 8;
constexpr double kMaxSlice = 512 * 1024;
constexpr size_t kMaxNests = 4;
// Of a loop that a register tile needs, so many iterations stay with each nest, if what they read
// again is no more than this.
constexpr int64_t kSharedTile = 16;
constexpr double kMaxReread = 256 * 1024;

// A kernel while it is planned.
struct Draft {
  struct Range {
    double size = 1;
    uint64_t hash = 0;    // equal in two kernels: the same range
    RangeSet around = 0;  // of a folded one: those that it runs inside of
  };
  std::vector<Range> ranges;  // the loops, outermost first, then the folded ones
  int loops = 0;
  bool closed = false;           // takes no more roots
  std::vector<RangeSet> fronts;  // loops that reductions depend on: each a part of the next
  std::vector<uint32_t> roots;
  std::vector<std::string> reasons;
  int64_t nodes = 0;
  uint32_t contraction = 0;
  // By loop: bytes of the operands of its sums of products that do not depend on it.
  std::vector<double> reread;
  std::vector<int> after;  // drafts that run after this one
  int merged_into = -1;

  RangeSet LoopSet() const { return (RangeSet{1} << loops) - 1; }
  double Product(RangeSet set) const {
    double n = 1;
    for (; set != 0; set &= set - 1) n *= ranges[std::countr_zero(set)].size;
    return n;
  }
};

// A node that a kernel computes, or loads.
struct Place {
  int draft = 0;
  Access access;
  bool tiled = false;  // an operand of a sum of products
  int folds = 0;       // reductions that hold it
};

class Planner {
 public:
  Planner(UOp sink, const FusionOptions& options, Budget* budget)
      : graph_(*sink.graph()),
        size_(sink.id() + 1),
        options_(options),
        budget_(budget),
        held_(budget) {
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
    JoinNests();
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

  // --- drafts -----------------------------------------------------------------------------------

  int Find(int draft) const {
    while (drafts_[draft].merged_into >= 0) draft = drafts_[draft].merged_into;
    return draft;
  }

  // What identifies loop number i of those over `shape`.
  static Access Loops(ShapeView shape) {
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

  int NewDraft(ShapeView shape, uint32_t root) {
    Draft draft;
    const Access loops = Loops(shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] != 1)
        draft.ranges.push_back({static_cast<double>(shape[i]), loops.axes[i].hash});
    }
    draft.loops = static_cast<int>(draft.ranges.size());
    draft.reread.assign(draft.ranges.size(), 0);
    draft.roots.push_back(root);
    draft.contraction = costs_[root].contraction;
    drafts_.push_back(std::move(draft));
    return static_cast<int>(drafts_.size()) - 1;
  }

  void AddPlace(uint32_t node, Place place) {
    if (NumElements(graph_.shape(node)) == 0) return;
    place.draft = Find(place.draft);
    if (graph_.shape(node).empty()) place.access.axes.clear();
    for (Place& p : places_[node]) {
      if (Find(p.draft) == place.draft && p.access == place.access) {
        p.tiled = p.tiled && place.tiled;
        p.folds = std::max(p.folds, place.folds);
        return;
      }
    }
    ++drafts_[place.draft].nodes;
    places_[node].push_back(std::move(place));
  }

  // Whether `from` has to run before `to`; true where it would take long to tell.
  bool HasPath(int from, int to) const {
    std::vector<int> stack{Find(from)};
    absl::flat_hash_set<int> seen;
    to = Find(to);
    while (!stack.empty()) {
      const int draft = stack.back();
      stack.pop_back();
      if (draft == to || seen.size() > kMaxWalk) return true;
      for (int next : drafts_[draft].after) {
        if (const int d = Find(next); seen.insert(d).second) stack.push_back(d);
      }
    }
    return false;
  }

  void AddEdge(int from, int to) {
    if (Find(from) != Find(to)) drafts_[Find(from)].after.push_back(Find(to));
  }

  // How often a position is computed that depends on `set`: a loop repeats what stands inside of
  // it, whether that depends on it or not.
  double Count(const Draft& draft, RangeSet set) const {
    RangeSet all = set;
    for (RangeSet folded = set & ~draft.LoopSet(); folded != 0; folded &= folded - 1) {
      all |= draft.ranges[std::countr_zero(folded)].around;
    }
    const RangeSet loops = all & draft.LoopSet();
    RangeSet around = loops == 0 ? 0 : (RangeSet{2} << (63 - std::countl_zero(loops))) - 1;
    for (RangeSet front : draft.fronts) {
      if ((loops & ~front) == 0 && draft.Product(front) < draft.Product(around)) around = front;
    }
    return draft.Product(around | (all & ~draft.LoopSet()));
  }

  bool Alone(const Draft& draft) const {
    return draft.closed || std::ranges::any_of(draft.roots, [&](uint32_t root) {
             return options_.alone.contains(root);
           });
  }

  // --- merging ----------------------------------------------------------------------------------

  void MergeKernels(uint32_t id, std::vector<Place>* places) {
    const auto elements = static_cast<double>(NumElements(graph_.shape(id)));
    for (size_t i = 0; i < places->size(); ++i) {
      for (size_t j = i + 1; j < places->size(); ++j) {
        Place &a = (*places)[i], &b = (*places)[j];
        a.draft = Find(a.draft);
        b.draft = Find(b.draft);
        if (a.draft == b.draft || a.access.axes != b.access.axes) continue;
        TryMerge(a.draft, b.draft, elements, a.access.ranges());
      }
    }
    for (size_t i = 0; i < places->size(); ++i) {
      (*places)[i].draft = Find((*places)[i].draft);
      for (size_t j = i + 1; j < places->size();) {
        Place &a = (*places)[i], &b = (*places)[j];
        if (a.draft == Find(b.draft) && a.access == b.access) {
          a.tiled = a.tiled && b.tiled;
          a.folds = std::max(a.folds, b.folds);
          places->erase(places->begin() + static_cast<std::ptrdiff_t>(j));
        } else {
          ++j;
        }
      }
    }
  }

  void TryMerge(int x, int y, double elements, RangeSet shared) {
    Draft &a = drafts_[x], &b = drafts_[y];
    if (Alone(a) || Alone(b) || a.loops != b.loops) return;
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
    // Two that fold stream over the same elements, or they stay apart.
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
    larger.nodes += smaller.nodes;
    if (larger.contraction == 0) larger.contraction = smaller.contraction;
    smaller.merged_into = into;
    smaller.roots.clear();
  }

  std::optional<int64_t> SlotOf(uint32_t root) const {
    if (graph_.op(root) != Op::kStore) return std::nullopt;
    uint32_t target = graph_.src(root)[0];
    while (graph_.op(target) != Op::kParam) target = graph_.src(target)[0];
    return graph_.arg(target)[0];
  }

  bool WritesSameSlot(const Draft& a, const Draft& b) const {
    for (uint32_t x : a.roots) {
      for (uint32_t y : b.roots) {
        if (const auto slot = SlotOf(x); slot.has_value() && slot == SlotOf(y)) return true;
      }
    }
    return false;
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
      const bool many = folds > 0 && draft.ranges.size() + folds > kMaxRanges;
      const bool deep = folds > 0 && p.folds >= kMaxFolds;
      if (draft.nodes > kMaxKernelNodes || many || deep) {
        *why = StrCat("stored: its user's kernel has ", draft.nodes, " nodes and ",
                      draft.ranges.size(), " ranges already");
        return Materialize::kSize;
      }
    }
    for (const Place& p : places) {
      if (!Fits(u, p, why)) return Materialize::kReduction;
    }
    const auto elements = static_cast<double>(NumElements(u.shape()));
    double computed = 0, loaded = 0;
    for (const Place& p : places) {
      const double count = Count(drafts_[p.draft], p.access.ranges());
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
    if (serial && Count(draft, set) * cost.work > kSmallWork) {
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
      if (Alone(draft) || draft.roots.size() >= kMaxRoots) continue;
      if (std::ranges::count_if(places, same) != 1 || p.access.gate != 0) continue;
      if (p.access.ranges() != draft.LoopSet() || p.access != Loops(u.shape())) continue;
      if (!SameLoops(draft, u.shape())) continue;
      const bool first = std::ranges::none_of(
          places, [&](const Place& q) { return q.draft != p.draft && HasPath(q.draft, p.draft); });
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
      draft = NewDraft(u.shape(), u.id());
      drafts_[draft].reasons.push_back(std::move(why));
    } else if (const uint32_t output = WholeOutput(u, drafts_[home]); output != 0) {
      plan_.aliases.emplace(u.id(), output);
    } else {
      drafts_[home].roots.push_back(u.id());
      drafts_[home].reasons.push_back(StrCat("also keeps a value that is ", why));
    }
    for (const Place& p : places) AddEdge(draft, p.draft);
    NoteOperand(u.id(), places);
    stored_values_.push_back({u.id(), draft, places});
    AddSources(u, {draft, Loops(u.shape()), false});
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

  // A STORE of `u` that is a root of the draft and the whole of a PARAM that nothing else touches.
  uint32_t WholeOutput(UOp u, const Draft& draft) const {
    for (uint32_t root : draft.roots) {
      const UOp store = graph_.at(root);
      if (!store.is(Op::kStore) || store.src(1) != u) continue;
      const UOp target = store.src(0);
      if (target.is(Op::kParam) && uses_[target.id()] == 1 &&
          std::ranges::equal(target.shape(), u.shape())) {
        return root;
      }
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
    }
    return below;
  }

  void VisitStore(UOp store) {
    const UOp target = store.src(0), value = store.src(1);
    if (NumElements(target.shape()) == 0) return;
    const int draft = NewDraft(target.shape(), store.id());
    drafts_[draft].reasons.push_back(StrCat("writes slot ", *SlotOf(store.id())));
    if (const auto it = readers_.find(store.id()); it != readers_.end()) {
      for (int reader : it->second) AddEdge(draft, reader);
    }
    AddPlace(value.id(), {draft, Loops(target.shape()), false});
  }

  void VisitScatter(UOp scatter, const std::vector<Place>& places) {
    plan_.decision[scatter.id()] = Materialize::kScatter;
    const int base = NewDraft(scatter.shape(), scatter.id());
    drafts_[base].closed = true;
    drafts_[base].reasons.emplace_back("scatters rows into a copy of its base");
    AddPlace(scatter.src(0).id(), {base, Loops(scatter.shape()), false});
    const UOp index = scatter.src(1), rows = scatter.src(2);
    const int update = NewDraft(rows.shape(), scatter.id());
    drafts_[update].closed = true;
    drafts_[update].roots.clear();  // the scheduler makes both kernels of the one root
    const Access at = Loops(rows.shape());
    Access index_at;
    index_at.axes.assign(at.axes.begin(),
                         at.axes.begin() + static_cast<std::ptrdiff_t>(index.shape().size()));
    AddPlace(index.id(), {update, std::move(index_at), false});
    AddPlace(rows.id(), {update, at, false});
    AddEdge(base, update);
    for (const Place& p : places) AddEdge(update, p.draft);
  }

  // --- nests ------------------------------------------------------------------------------------

  struct StoredValue {
    uint32_t node;
    int writer;                  // a draft
    std::vector<Place> readers;  // and where they need it
  };
  // Drafts that are one kernel.
  struct Group {
    std::vector<int> drafts;  // writers before readers
    int shared = 0;
    int64_t tile = 1;  // iterations of the last shared loop that they run together
  };

  void JoinNests() {
    group_of_.resize(drafts_.size());
    std::iota(group_of_.begin(), group_of_.end(), 0);
    groups_.resize(drafts_.size());
    for (size_t i = 0; i < drafts_.size(); ++i) {
      groups_[i].drafts = {static_cast<int>(i)};
      groups_[i].shared = drafts_[i].loops;
    }
    values_of_.resize(drafts_.size());
    for (size_t v = 0; v < stored_values_.size(); ++v) {
      values_of_[Find(stored_values_[v].writer)].push_back(v);
    }
    for (auto value = stored_values_.rbegin(); value != stored_values_.rend(); ++value) {
      for (const Place& p : value->readers) TryJoin(*value, Find(value->writer), Find(p.draft));
    }
  }

  void TryJoin(const StoredValue& value, int writer, int reader) {
    const int from = group_of_[writer], to = group_of_[reader];
    if (from == to) return;
    Group &a = groups_[from], &b = groups_[to];
    if (a.drafts.size() + b.drafts.size() > kMaxNests) return;
    if (std::ranges::any_of(a.drafts, [&](int d) { return HoldsStore(drafts_[d]); })) return;
    size_t ranges = 0;
    int64_t nodes = 0;
    for (const std::vector<int>* drafts : {&a.drafts, &b.drafts}) {
      for (int d : *drafts) {
        ranges += drafts_[d].ranges.size();
        nodes += drafts_[d].nodes;
      }
    }
    if (ranges > kMaxRanges || nodes > kMaxMergedNodes) return;
    // As many loops as all of them can share.
    int shared = std::min(a.shared, b.shared);
    std::vector<double> reread;
    for (const std::vector<int>* drafts : {&a.drafts, &b.drafts}) {
      for (int d : *drafts) {
        shared = std::min(shared, MayShare(drafts_[d]));
        for (int loop = 0; loop < shared; ++loop) {
          reread.resize(std::max<size_t>(reread.size(), loop + 1), 0);
          reread[loop] = std::max(reread[loop], drafts_[d].reread[loop]);
        }
      }
    }
    for (int d : a.drafts) {
      for (size_t v : values_of_[d]) {
        for (const Place& p : stored_values_[v].readers) {
          if (group_of_[Find(p.draft)] != to) continue;
          shared = std::min(shared, SharedLoops(stored_values_[v], p));
        }
      }
    }
    const Draft& outer = drafts_[writer];
    const int64_t tile = LimitSharing(outer, reread, &shared);
    if (std::max(a.tile, b.tile) > 1 &&
        (std::max(a.tile, b.tile) != tile || std::max(a.shared, b.shared) < shared)) {
      return;
    }
    const double iterations =
        outer.Product((RangeSet{1} << shared) - 1) / static_cast<double>(tile);
    if (shared == 0 || iterations < kMinShared) return;
    const auto bytes = static_cast<double>(
        BytesOf(graph_.dtype(value.node), NumElements(graph_.shape(value.node))));
    if (bytes / iterations > kMaxSlice || PassesOutside(from, to)) return;
    for (int d : a.drafts) group_of_[d] = to;
    b.drafts.insert(b.drafts.begin(), a.drafts.begin(), a.drafts.end());
    b.shared = shared;
    b.tile = tile;
    a.drafts.clear();
  }

  // A sum of products shares a loop that one of its operands does not depend on only in tiles, for
  // each of which that operand is read again: from a cache, or not at all. The tile's iterations of
  // the last shared loop; `*shared` shrinks to what is shared.
  static int64_t LimitSharing(const Draft& draft, const std::vector<double>& reread, int* shared) {
    for (int loop = 0; loop < *shared; ++loop) {
      if (reread[loop] == 0) continue;
      *shared = loop;
      const auto size = static_cast<int64_t>(draft.ranges[loop].size);
      const bool tiles =
          reread[loop] <= kMaxReread && size % kSharedTile == 0 && size / kSharedTile > 1;
      if (!tiles) return 1;
      ++*shared;
      return kSharedTile;
    }
    return 1;
  }

  bool HoldsStore(const Draft& draft) const {
    return std::ranges::any_of(draft.roots,
                               [&](uint32_t root) { return graph_.op(root) == Op::kStore; });
  }

  // How many of its outermost loops the draft can leave to be shared: those that its reductions may
  // run inside of.
  int MayShare(const Draft& draft) const {
    if (Alone(draft)) return 0;
    int shared = 0;
    for (; shared < draft.loops; ++shared) {
      const RangeSet all = (RangeSet{2} << shared) - 1;
      const bool orders = std::ranges::all_of(
          draft.fronts, [&](RangeSet front) { return (all & ~front) == 0 || (front & ~all) == 0; });
      if (!orders) break;
    }
    return shared;
  }

  // The outermost loops of the writer and of the reader that walk over the same slices of a value.
  int SharedLoops(const StoredValue& value, const Place& place) const {
    const Draft& writer = drafts_[Find(value.writer)];
    const Draft& reader = drafts_[Find(place.draft)];
    const ShapeView shape = graph_.shape(value.node);
    int shared = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == 1) continue;
      if (shared >= reader.loops || shared >= writer.loops) break;
      const AxisUse loop{reader.ranges[shared].hash, RangeSet{1} << shared};
      if (place.access.axes[axis] != loop) break;
      if (reader.ranges[shared].size != writer.ranges[shared].size) break;
      ++shared;
    }
    return shared;
  }

  // Whether something that is in neither group runs after the one and before the other.
  bool PassesOutside(int from, int to) const {
    std::vector<int> stack;
    absl::flat_hash_set<int> seen;
    for (int d : groups_[from].drafts) stack.push_back(d);
    while (!stack.empty()) {
      const int draft = stack.back();
      stack.pop_back();
      if (seen.size() > kMaxWalk) return true;
      const bool outside = group_of_[draft] != from;
      for (int next : drafts_[draft].after) {
        const int d = Find(next);
        if (group_of_[d] == to && outside) return true;
        if (group_of_[d] == to || !seen.insert(d).second) continue;
        stack.insert(stack.end(), groups_[group_of_[d]].drafts.begin(),
                     groups_[group_of_[d]].drafts.end());
      }
    }
    return false;
  }

  void EmitKernels() {
    for (const Group& group : groups_) {
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
  std::vector<Draft> drafts_;
  std::vector<std::vector<Place>> places_;                   // of the nodes not visited yet
  absl::flat_hash_map<uint32_t, std::vector<int>> readers_;  // of what a STORE has written
  std::vector<StoredValue> stored_values_;
  std::vector<int> group_of_;                   // by draft
  std::vector<std::vector<size_t>> values_of_;  // by draft: what it stores
  std::vector<Group> groups_;
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
