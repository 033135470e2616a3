// A RANGE is a bound variable: a REDUCE binds it in its body. Of those that bind the same one, the
// outermost keep it and the others get new ones, inner ones first: so no body that is renamed holds
// another that binds the same RANGE.
#include "engine/lowering/separate.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/lowering/affine.h"

namespace telegrad {
namespace {

// Those that keep a range as their loop.
struct Owners {
  bool end = false;             // an END is one
  std::vector<uint32_t> folds;  // REDUCEs
};

class Separator {
 public:
  Separator(Graph* graph, UOp sink, Dependence d)
      : g_(*graph), order_(PostOrder(sink)), d_(std::move(d)), needs_(g_, 0), keeps_(g_, false) {}

  UOp Run(UOp sink) {
    FindOwners();
    NodeMap<uint32_t> made(g_);
    std::vector<UOp> src;
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      src.clear();
      for (uint32_t s : u.src_ids()) src.push_back(g_.at(made[s]));
      if (u.is(Op::kReduce) && !keeps_[id]) Rename(&src);
      made[id] = id;
      if (std::ranges::equal(src, u.src_ids(), {}, &UOp::id)) continue;
      const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
      const UOp copy = g_.Make(u.op(), u.dtype(), src, arg);
      if (!copy.valid()) return copy;
      made[id] = copy.id();
    }
    return g_.at(made[sink.id()]);
  }

 private:
  void FindOwners() {
    int folds = 0;
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      for (uint32_t s : u.src_ids()) needs_[id] |= needs_[s];
      if (u.is(Op::kRange)) next_id_ = std::max(next_id_, u.arg(0) + 1);
      for (int i = 1; u.is(Op::kEnd) && i < u.num_src(); ++i) owners_[u.src(i).id()].end = true;
      if (u.is(Op::kReduce)) bit_[id] = folds++;
      if (u.is(Op::kReduce) && bit_[id] < 64) needs_[id] |= uint64_t{1} << bit_[id];
    }
    for (size_t i = order_.size(); i-- > 0;) {
      const UOp u = g_.at(order_[i]);
      if (u.is(Op::kReduce)) keeps_[u] = Keeps(u);
    }
  }

  bool Keeps(UOp reduce) {
    for (int i = 1; i < reduce.num_src(); ++i) {
      const Owners& owners = owners_[reduce.src(i).id()];
      if (owners.end) return false;
      for (uint32_t other : owners.folds) {
        if (!AreOneLoop(reduce, g_.at(other))) return false;
      }
    }
    for (int i = 1; i < reduce.num_src(); ++i) {
      owners_[reduce.src(i).id()].folds.push_back(reduce.id());
    }
    return true;
  }

  // `inner` comes first in the order, so only `outer` may need the other.
  bool AreOneLoop(UOp inner, UOp outer) {
    const int bit = bit_[inner.id()];
    return bit < 64 && (needs_[outer.id()] >> bit & 1) == 0 &&
           d_.of[inner.id()] == d_.of[outer.id()] &&
           std::ranges::equal(inner.src_ids().subspan(1), outer.src_ids().subspan(1));
  }

  // `src` are those of a REDUCE: new ranges, and the body with them.
  void Rename(std::vector<UOp>* src) {
    absl::flat_hash_map<uint32_t, uint32_t> made;
    for (size_t i = 1; i < src->size(); ++i) {
      const UOp range = (*src)[i];
      (*src)[i] = g_.Range(next_id_++, static_cast<AxisType>(range.arg(1)), range.src(0));
      made[range.id()] = (*src)[i].id();
    }
    std::vector<UOp> sources;
    for (uint32_t id : PostOrder((*src)[0])) {
      const UOp u = g_.at(id);
      sources.clear();
      for (uint32_t s : u.src_ids()) {
        const auto it = made.find(s);
        sources.push_back(g_.at(it != made.end() ? it->second : s));
      }
      if (made.contains(id) || std::ranges::equal(sources, u.src_ids(), {}, &UOp::id)) continue;
      const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
      const UOp copy = g_.Make(u.op(), u.dtype(), sources, arg);
      if (!copy.valid()) return;
      made[id] = copy.id();
    }
    if (const auto it = made.find((*src)[0].id()); it != made.end()) (*src)[0] = g_.at(it->second);
  }

  Graph& g_;
  const std::vector<uint32_t> order_;
  const Dependence d_;
  NodeMap<uint64_t> needs_;  // by node: the REDUCEs it depends on, by their bits
  NodeMap<bool> keeps_;
  absl::flat_hash_map<uint32_t, int> bit_;
  absl::flat_hash_map<uint32_t, Owners> owners_;  // by range
  int64_t next_id_ = 0;
};

}  // namespace

UOp SeparateRanges(Graph* graph, UOp sink) {
  std::optional<Dependence> d = FindDependence(sink);
  if (!d) return graph->Fail(ResourceExhausted("lowering: more than ", kMaxRanges, " ranges"));
  return Separator(graph, sink, *std::move(d)).Run(sink);
}

}  // namespace telegrad
