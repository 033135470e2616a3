#include "engine/schedule/nests.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/score_rows.h"

namespace telegrad {
namespace {

constexpr size_t kMaxNests = 4;       // of one kernel
constexpr size_t kMaxRowNests = 6;    // of one that keeps rows of scores, or computes them again
constexpr size_t kMoreRowRanges = 6;  // of which each nest has few of its own
// A mask ends the loops of each tile where it hides the rest, which is little of few tiles.
constexpr double kMinTiles = 8;

class Joiner {
 public:
  // `rows`: of these values a kernel needs a block of each row at a time, if it keeps them.
  Joiner(const Graph& graph, std::span<const uint32_t> order, const Drafts& drafts,
         const std::vector<StoredValue>& values, const ScoreRows& rows,
         const FusionOptions& options)
      : graph_(graph),
        drafts_(drafts),
        values_(values),
        score_rows_(rows),
        costs_(options.costs),
        private_(static_cast<double>(options.private_bytes)),
        row_bytes_(static_cast<double>(options.row_bytes)),
        row_groups_(static_cast<double>(options.row_groups)),
        row_warp_(options.row_warp),
        kept_rows_(options.rows),
        sums_of_bytes_(options.sums_of_bytes),
        one_product_(options.one_product),
        uses_(graph.size()) {
    for (const uint32_t id : order) {
      for (const uint32_t s : graph.src(id)) ++uses_[s];
    }
  }

  std::vector<NestGroup> Run() && {
    group_of_.resize(drafts_.size());
    std::iota(group_of_.begin(), group_of_.end(), 0);
    groups_.resize(drafts_.size());
    for (size_t i = 0; i < drafts_.size(); ++i) {
      groups_[i].drafts = {static_cast<int>(i)};
      groups_[i].shared = drafts_[i].loops;
    }
    values_of_.resize(drafts_.size());
    for (size_t v = 0; v < values_.size(); ++v) {
      values_of_[Find(values_[v].writer)].push_back(v);
    }
    // Kernels that compute rows again have to keep them, whatever else they could share. So should
    // those that reduce scores, before what computes the operands of these joins them.
    for (const Rows rows : {Rows::kComputedAgain, Rows::kOfScores, Rows::kNone}) {
      for (auto value = values_.rbegin(); value != values_.rend(); ++value) {
        if (RowsOf(value->node) != rows) continue;
        for (const KernelUse& use : value->readers) {
          TryJoin(*value, Find(value->writer), Find(use.draft));
        }
      }
    }
    for (const StoredValue& value : values_) Keep(value);
    return std::move(groups_);
  }

  // Whether a kernel keeps the value, and an iteration of its shared loops has one row of it, or
  // the same part of several.
  static bool KeepsRows(const Drafts& drafts, const std::vector<NestGroup>& groups,
                        const StoredValue& value, double elements, int64_t row) {
    const int writer = drafts.Find(value.writer);
    return std::ranges::any_of(groups, [&](const NestGroup& group) {
      const double rows = drafts[writer].Product((RangeSet{1} << group.shared) - 1);
      return std::ranges::find(group.kept, value.node) != group.kept.end() &&
             rows * static_cast<double>(row) == elements;
    });
  }

 private:
  enum class Rows : uint8_t { kComputedAgain, kOfScores, kNone };
  Rows RowsOf(uint32_t value) const {
    if (kept_rows_.contains(value)) return Rows::kComputedAgain;
    return IsOfScores(graph_.at(value)) ? Rows::kOfScores : Rows::kNone;
  }

  // Whether it is computed, element by element, from a sum of products with more elements than each
  // of their operands.
  static bool IsOfScores(UOp u) {
    constexpr int kMostSteps = 32;
    for (int step = 0; step < kMostSteps && !u.is(Op::kReduce); ++step) {
      const int64_t elements = NumElements(u.shape());
      UOp from;
      for (int i = 0; i < u.num_src() && !from.valid(); ++i) {
        const UOp source = BelowMovement(u.src(i));
        if (IsFloat(source.dtype()) && NumElements(source.shape()) == elements) from = source;
      }
      if (!from.valid()) return false;
      u = from;
    }
    return u.is(Op::kReduce) && Grows(u);
  }

  int Find(int draft) const { return drafts_.Find(draft); }

  // What may be kept of the value.
  double BytesFor(uint32_t node) const {
    return row_bytes_ > 0 && score_rows_.contains(node) ? row_bytes_ : private_;
  }

  void TryJoin(const StoredValue& value, int writer, int reader) {
    const int from = group_of_[writer], to = group_of_[reader];
    if (from == to) return;
    NestGroup &a = groups_[from], &b = groups_[to];
    const bool rows = kept_rows_.contains(value.node) || score_rows_.contains(value.node);
    if (!rows && ComputesBlocks(a)) return;
    if (a.drafts.size() + b.drafts.size() > (rows ? kMaxRowNests : kMaxNests)) return;
    if (std::ranges::any_of(a.drafts, [&](int d) { return HoldsStore(drafts_[d]); })) return;
    for (int d : b.drafts) {  // what the nests of `a` need they would come too late for
      for (int e : a.drafts) {
        if (rows && a.drafts.size() > 1 && drafts_.HasPath(d, e)) return;
      }
    }
    if (!rows && (AddsBytes(a) || AddsBytes(b))) return;
    if (one_product_ && drafts_[reader].product != 0 && ReducesNothing(a)) return;
    size_t ranges = 0;
    int64_t nodes = 0;
    for (const std::vector<int>* drafts : {&a.drafts, &b.drafts}) {
      for (int d : *drafts) {
        ranges += static_cast<size_t>(drafts_[d].loops + drafts_[d].folds);
        nodes += drafts_[d].nodes;
      }
    }
    if (nodes > Drafts::kMaxMergedNodes) return;
    if (BytesFor(value.node) == 0 && ranges > Drafts::kMaxRanges) return;
    // As many loops as all of them can share.
    int shared = std::min(a.shared, b.shared);
    if (const auto kept = kept_rows_.find(value.node); kept != kept_rows_.end()) {
      shared = std::min(shared, kept->second.loops);
    }
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
        for (const KernelUse& use : values_[v].readers) {
          if (group_of_[Find(use.draft)] != to) continue;
          shared = std::min(shared, SharedLoops(values_[v], use));
        }
      }
    }
    const Draft& outer = drafts_[writer];
    int64_t tile = RowsTogether(value, a, b, reread, shared);
    if (tile == 0) tile = LimitSharing(outer, reread, &shared);
    if (std::max(a.tile, b.tile) > 1 &&
        (std::max(a.tile, b.tile) != tile || std::max(a.shared, b.shared) < shared)) {
      return;
    }
    // The nests have one of each loop that they share, and of a tiled one what is left each.
    const size_t nests = a.drafts.size() + b.drafts.size();
    const auto common = static_cast<size_t>(tile > 1 ? shared - 1 : shared);
    const size_t most = Drafts::kMaxRanges + (rows ? kMoreRowRanges : 0);
    if (ranges > most + common * (nests - 1)) return;
    const double iterations = Iterations(outer, shared, tile);
    if (shared == 0 || iterations < costs_.shared) return;
    if (BytesOfValue(value.node) / iterations > costs_.slice_bytes || PassesOutside(from, to))
      return;
    for (int d : a.drafts) group_of_[d] = to;
    b.drafts.insert(b.drafts.begin(), a.drafts.begin(), a.drafts.end());
    b.shared = shared;
    b.tile = tile;
    a.drafts.clear();
  }

  static double Iterations(const Draft& draft, int shared, int64_t tile) {
    const double all = draft.Product((RangeSet{1} << shared) - 1);
    if (tile == 1) return all;
    const double last = draft.ranges[shared - 1].size;
    return all / last * std::ceil(last / static_cast<double>(tile));
  }

  double BytesOfValue(uint32_t node) const {
    const auto bytes =
        static_cast<double>(BytesOf(graph_.dtype(node), NumElements(graph_.shape(node))));
    const auto row = score_rows_.find(node);
    if (row == score_rows_.end() || row->second.elements <= costs_.row_block) return bytes;
    return bytes * static_cast<double>(costs_.row_block) /
           static_cast<double>(row->second.elements);
  }

  // The terms of scores of which a cache keeps an operand for all rows.
  double MostTermsOfBlock(uint32_t scores) const {
    const auto bytes = static_cast<double>(costs_.row_block * ByteSize(graph_.dtype(scores)));
    return costs_.panel_bytes / bytes;
  }

  // How many iterations of the last of the loops that both share are rows that private memory
  // keeps; 0: none. The rows are reduced in one of the kernels, as a softmax's are, so that what
  // sums of products read again, they read for many rows.
  int64_t RowsTogether(const StoredValue& value, const NestGroup& a, const NestGroup& b,
                       const std::vector<double>& reread, int shared) const {
    const double room = BytesFor(value.node);
    if (room == 0 || shared == 0) return 0;
    const RangeSet all = (RangeSet{1} << shared) - 1, last = RangeSet{1} << (shared - 1);
    // In blocks, most rows are computed at a time, and their products take longer than the operands
    // from memory.
    const bool blocks = score_rows_.contains(value.node);
    bool again = false, reduced = kept_rows_.contains(value.node);
    for (int loop = 0; loop < shared; ++loop) again |= reread[loop] != 0;
    if (!again) return 0;
    for (const std::vector<int>* drafts : {&a.drafts, &b.drafts}) {
      for (int d : *drafts) {
        const Draft& draft = drafts_[d];
        reduced |= std::ranges::find(draft.fronts, all) != draft.fronts.end();
        if (draft.contraction == kSeveral) return 0;
        for (const Draft::Operand& operand : draft.operands) {
          const bool stays = (operand.ranges & last) == 0;
          const double bytes = operand.bytes / draft.Product(operand.ranges & all);
          if (stays && !blocks && bytes > costs_.shared_bytes) return 0;
        }
      }
    }
    const uint32_t product = drafts_[a.drafts.front()].contraction;
    if (!reduced || product == 0) return 0;
    const double terms = FoldedExtent(graph_.at(product));
    const bool together = blocks && row_bytes_ > 0;  // a workgroup's threads
    if (terms > (blocks && !together ? MostTermsOfBlock(value.node) : costs_.kept_terms)) return 0;
    const Draft& outer = drafts_[Find(value.writer)];
    double row = BytesOfValue(value.node) / outer.Product(all);
    for (int d : b.drafts) {
      const Draft& draft = drafts_[d];
      if (!blocks || together || draft.contraction == 0) continue;
      row += draft.Product(draft.LoopSet() & ~all) *  // its accumulators
             static_cast<double>(ByteSize(graph_.dtype(value.node)));
    }
    // Threads share the scores, and one weighted sum, of the loops around and one inside.
    if (together) {
      int sums = 0;
      for (const std::vector<int>* drafts : {&a.drafts, &b.drafts}) {
        for (int d : *drafts) {
          if (drafts_[d].contraction == 0) continue;
          if (drafts_[d].loops != shared + 1 || ++sums > 2) return 0;
        }
      }
    }
    const auto several = kept_rows_.find(value.node);
    const double values = several == kept_rows_.end() ? 2 : std::max(2, several->second.values);
    const auto fits = [&](int64_t rows) {
      return static_cast<double>(rows) * row <= std::min(costs_.slice_bytes, room / values);
    };
    const double n = outer.ranges[shared - 1].size;
    // Fewer rows at a time leave more iterations for threads.
    int64_t rows = costs_.kept_rows;
    if (together) {
      // As many warps as a power of two.
      const auto warps = static_cast<uint64_t>(std::max<int64_t>(1, rows / row_warp_));
      rows = static_cast<int64_t>(std::bit_floor(warps)) * row_warp_;
      const auto few = [&] { return 2 * Iterations(outer, shared, rows) < row_groups_; };
      while (rows > row_warp_ && (static_cast<double>(rows) > n || !fits(rows) || few())) rows /= 2;
      if (static_cast<double>(rows) > n) rows = 1;  // a workgroup reads the operands for each
      return fits(rows) ? rows : 0;
    }
    while (rows > costs_.least_rows && (static_cast<double>(rows) > n || !fits(rows))) rows /= 2;
    const auto few = [&] {
      return (several == kept_rows_.end() && static_cast<double>(rows) * kMinTiles > n) ||
             Iterations(outer, shared, rows) < costs_.shared;
    };
    while (rows > 2 * costs_.least_rows && few()) rows /= 2;
    return fits(rows) && static_cast<double>(rows) <= n ? rows : 0;
  }

  // Puts what only the nests of one kernel need into private memory.
  void Keep(const StoredValue& value) {
    const int writer = Find(value.writer);
    NestGroup& group = groups_[group_of_[writer]];
    const double room = BytesFor(value.node);
    if (room == 0 || group.drafts.size() < 2) return;
    const bool stays = std::ranges::all_of(value.readers, [&](const KernelUse& use) {
      return group_of_[Find(use.draft)] == group_of_[writer];
    });
    const double bytes =
        BytesOfValue(value.node) / Iterations(drafts_[writer], group.shared, group.tile);
    double kept = bytes;
    for (uint32_t other : group.kept) {
      kept += BytesOfValue(other) / Iterations(drafts_[writer], group.shared, group.tile);
    }
    if (stays && kept <= room) group.kept.push_back(value.node);
  }

  // A sum of products shares a loop that one of its operands does not depend on only in tiles, for
  // each of which that operand is read again: from a cache, or not at all. The tile's iterations of
  // the last shared loop; `*shared` shrinks to what is shared.
  int64_t LimitSharing(const Draft& draft, const std::vector<double>& reread, int* shared) const {
    for (int loop = 0; loop < *shared; ++loop) {
      if (reread[loop] == 0) continue;
      *shared = loop;
      const auto size = static_cast<int64_t>(draft.ranges[loop].size);
      const int64_t tile = costs_.tile;
      if (reread[loop] > costs_.panel_bytes || size % tile != 0 || size / tile < 2) return 1;
      ++*shared;
      return tile;
    }
    return 1;
  }

  // Whether it has rows of scores in blocks: what these are added up to is known after the last.
  bool ComputesBlocks(const NestGroup& group) const {
    return group.drafts.size() > 1 && std::ranges::any_of(group.drafts, [&](int d) {
             return std::ranges::any_of(
                 values_of_[d], [&](size_t v) { return score_rows_.contains(values_[v].node); });
           });
  }

  // As what stores an operand of a product in another order: only alone in its kernel the product
  // has tiles in local memory.
  bool ReducesNothing(const NestGroup& group) const {
    return std::ranges::all_of(group.drafts, [&](int d) { return drafts_[d].folds == 0; });
  }

  // What is kept for other nests of the kernel would take the words of its bytes from it.
  bool AddsBytes(const NestGroup& group) const {
    return std::ranges::any_of(
        group.drafts, [&](int d) { return sums_of_bytes_.contains(drafts_[d].contraction); });
  }

  // A STORE, unless nothing else reads or writes its slot: then nothing has to precede or follow.
  bool HoldsStore(const Draft& draft) const {
    return std::ranges::any_of(draft.roots, [&](uint32_t root) {
      if (graph_.op(root) != Op::kStore) return false;
      uint32_t target = graph_.src(root)[0];
      while (Is(graph_.op(target), kMovement) && uses_[target] == 1) target = graph_.src(target)[0];
      return graph_.op(target) != Op::kParam || uses_[target] != 1 || uses_[root] != 1;
    });
  }

  // How many of its outermost loops the draft can leave to be shared: those that its reductions may
  // run inside of.
  int MayShare(const Draft& draft) const {
    if (drafts_.Alone(draft)) return 0;
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
  int SharedLoops(const StoredValue& value, const KernelUse& use) const {
    const Draft& writer = drafts_[Find(value.writer)];
    const Draft& reader = drafts_[Find(use.draft)];
    const ShapeView shape = graph_.shape(value.node);
    int shared = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == 1) continue;
      if (shared >= reader.loops || shared >= writer.loops) break;
      const AxisUse loop{reader.ranges[shared].hash, RangeSet{1} << shared};
      if (use.access.axes[axis] != loop) break;
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
      if (seen.size() > Drafts::kMaxWalk) return true;
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

  const Graph& graph_;
  const Drafts& drafts_;
  const std::vector<StoredValue>& values_;
  const ScoreRows& score_rows_;
  const ScheduleCosts& costs_;
  const double private_, row_bytes_, row_groups_;
  const int64_t row_warp_;
  const absl::flat_hash_map<uint32_t, KeptRows>& kept_rows_;  // see FusionOptions
  const absl::flat_hash_set<uint32_t>& sums_of_bytes_;
  const bool one_product_;
  std::vector<int> uses_;                       // by node
  std::vector<int> group_of_;                   // by draft
  std::vector<std::vector<size_t>> values_of_;  // by draft: what it stores
  std::vector<NestGroup> groups_;
};

}  // namespace

// A row is taken in blocks only where one kernel has all of it: the scores, their weights and what
// these are added up to. Where one of them is stored after all, or is not kept so that its rows lie
// side by side, all are planned again without.
std::vector<NestGroup> JoinNests(const Graph& graph, std::span<const uint32_t> order,
                                 const Drafts& drafts, const std::vector<StoredValue>& values,
                                 const FusionOptions& options) {
  absl::flat_hash_set<uint32_t> stored;
  for (const StoredValue& value : values) stored.insert(value.node);
  ScoreRows rows;
  if (options.row_blocks && (options.private_bytes > 0 || options.row_bytes > 0))
    rows = FindScoreRows(graph, order, stored);
  while (true) {
    std::vector<NestGroup> groups = Joiner(graph, order, drafts, values, rows, options).Run();
    absl::flat_hash_set<uint32_t> whole;  // softmaxes
    for (const StoredValue& value : values) {
      const auto row = rows.find(value.node);
      if (row == rows.end()) continue;
      const auto elements = static_cast<double>(NumElements(graph.shape(value.node)));
      if (!Joiner::KeepsRows(drafts, groups, value, elements, row->second.elements)) {
        whole.insert(row->second.softmax);
      }
    }
    if (whole.empty()) return groups;
    absl::erase_if(rows, [&](const auto& row) { return whole.contains(row.second.softmax); });
  }
}

}  // namespace telegrad
