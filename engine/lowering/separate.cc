// A RANGE is a bound variable: a REDUCE binds it in its body. REDUCEs of one level, that is with
// equally long chains of REDUCEs below them, do not need each other; those that also stand in the
// same loops are one loop. Of the loops that bind the same RANGE the outermost keeps it and the
// others get new ones, inner ones first: so no body that is renamed holds another that binds it.
#include "engine/lowering/separate.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/status.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/substitute.h"
#include "engine/lowering/workgroup.h"

namespace telegrad {
namespace {

class Separator {
 public:
  Separator(Graph* graph, UOp sink, Dependence d)
      : g_(*graph), order_(PostOrder(sink)), d_(std::move(d)), level_(g_, 0) {}

  UOp Run(UOp sink) {
    FindLoops();
    return Rebuild(g_, sink, [&](UOp u, std::vector<UOp>* src) {
      if (u.is(Op::kReduce)) Rename(loops_.at(KeyOf(u)), src);
      return WithSources(g_, u, *src);
    });
  }

 private:
  using Ranges = std::vector<uint32_t>;
  using Key = std::tuple<Ranges, int, RangeSet>;  // ranges, level, the loops around

  static Ranges RangesOf(UOp closer) {
    const std::span<const uint32_t> ranges = closer.src_ids().subspan(1);
    return {ranges.begin(), ranges.end()};
  }
  Key KeyOf(UOp reduce) { return {RangesOf(reduce), level_.at(reduce.id()), d_.of[reduce.id()]}; }

  // What each loop's ranges become.
  void FindLoops() {
    absl::flat_hash_set<uint32_t> taken;
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      for (uint32_t s : u.src_ids()) level_[id] = std::max<int>(level_[id], level_.at(s));
      if (u.is(Op::kReduce)) ++level_[id];
      if (u.is(Op::kRange)) next_id_ = std::max(next_id_, u.range_id() + 1);
      if (u.is(Op::kEnd)) {
        for (uint32_t range : RangesOf(u)) taken.insert(range);
      }
    }
    for (size_t i = order_.size(); i-- > 0;) {
      const UOp u = g_.at(order_[i]);
      if (!u.is(Op::kReduce)) continue;
      const auto [loop, added] = loops_.try_emplace(KeyOf(u), RangesOf(u));
      if (!added) continue;
      // Threads are around the whole kernel, whatever they share.
      const auto is_taken = [&](uint32_t range) {
        return taken.contains(range) && !IsThreads(g_.at(range));
      };
      const bool free = std::ranges::none_of(loop->second, is_taken);
      for (uint32_t& range : loop->second) {
        if (IsThreads(g_.at(range))) continue;
        taken.insert(range);
        if (free) continue;
        const UOp old = g_.at(range);
        range = g_.Range(next_id_++, old.axis_type(), old.src(0)).id();
      }
    }
  }

  // `src` are those of a REDUCE: it gets `ranges`, and so does its body. Their ends stay those of
  // `src`: where an end is computed, REDUCEs in it have been renamed by now.
  void Rename(Ranges ranges, std::vector<UOp>* src) {
    for (size_t i = 1; i < src->size(); ++i) {
      const UOp to = g_.at(ranges[i - 1]), end = (*src)[i].src(0);
      if (to.src(0) == end) continue;
      ranges[i - 1] = g_.Range(to.range_id(), to.axis_type(), end).id();
    }
    if (std::ranges::equal(ranges, std::span(*src).subspan(1), {}, {}, &UOp::id)) return;
    absl::flat_hash_map<uint32_t, uint32_t> made;
    for (size_t i = 1; i < src->size(); ++i) {
      made[(*src)[i].id()] = ranges[i - 1];
      (*src)[i] = g_.at(ranges[i - 1]);
    }
    src->front() = Rebuild(g_, src->front(), [&](UOp u, std::vector<UOp>* sources) {
      const auto it = made.find(u.id());
      return it != made.end() ? g_.at(it->second) : WithSources(g_, u, *sources);
    });
  }

  Graph& g_;
  const std::vector<uint32_t> order_;
  const Dependence d_;
  NodeMap<int> level_;  // how many REDUCEs need each other from the node down
  absl::flat_hash_map<Key, Ranges> loops_;
  int64_t next_id_ = 0;
};

}  // namespace

// A loop that is renamed in one of two nests leaves the loops inside of it shared by both: these
// are found in the next round.
UOp SeparateRanges(Graph* graph, UOp sink) {
  constexpr int kRounds = 8;  // as deep as REDUCEs may nest
  for (int i = 0; i < kRounds; ++i) {
    std::optional<Dependence> d = FindDependence(sink);
    if (!d) return graph->Fail(ResourceExhausted("lowering: more than ", kMaxRanges, " ranges"));
    const UOp next = Separator(graph, sink, *std::move(d)).Run(sink);
    if (!next.valid() || next == sink) return next;
    sink = next;
  }
  return sink;
}

}  // namespace telegrad
