#include "engine/schedule/window_product.h"

#include <algorithm>
#include <optional>

#include "engine/schedule/range_facts.h"

namespace telegrad {
namespace {

constexpr int64_t kWindow = 3;

class Finder {
 public:
  explicit Finder(UOp sink) : sink_(sink), g_(*sink.graph()), order_(PostOrder(sink)) {}

  std::optional<WindowProduct> Run() {
    if (sink_.num_src() != 1 || !CollectNodes()) return std::nullopt;
    const UOp product = out_.reduce.src(0);
    if (!product.is(Op::kMul)) return std::nullopt;
    for (const bool second : {false, true}) {
      out_.weight = product.src(second ? 1 : 0);
      out_.input = product.src(second ? 0 : 1);
      if (IsWeight() && FindRanges()) return out_;
    }
    return std::nullopt;
  }

 private:
  int IndexOf(UOp range) const { return facts_->IndexOf(range); }
  const NodeFacts& FactsOf(UOp u) const { return (*facts_)[u]; }

  // One STORE of a value with one sum, in loops of fixed sizes.
  bool CollectNodes() {
    UOp nest = sink_.src(0);
    for (; nest.is(Op::kEnd); nest = nest.src(0)) {
      for (int i = 1; i < nest.num_src(); ++i) loops_.push_back(nest.src(i));
    }
    if (!nest.is(Op::kStore) || nest.src(0).num_src() != 2) return false;
    out_.store = nest;
    facts_ = RangeFacts::Of(sink_);
    if (!facts_) return false;
    for (const uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kReduce)) continue;
      if (out_.reduce.valid() || u.dtype() != DType::kFloat32) return false;
      if (u.reduce_kind() != ReduceKind::kAdd) return false;
      out_.reduce = u;
    }
    return out_.reduce.valid() && !WritesWhatItReads();
  }

  bool WritesWhatItReads() const {
    const UOp written = out_.store.src(0).src(0);
    return std::ranges::any_of(order_, [&](uint32_t id) {
      const UOp u = g_.at(id);
      return u.is(Op::kLoad) && u.src(0).src(0) == written;
    });
  }

  bool IsWeight() const {
    const UOp w = out_.weight;
    return w.is(Op::kLoad) && w.src(0).num_src() == 2 && w.src(0).src(0).is(Op::kParam) &&
           w.dtype() == DType::kFloat32 && FactsOf(w.src(0).src(1)).linear;
  }

  // Whether what `root` reads depends on these two ranges only through their sum.
  bool DependsOnSum(UOp root, int a, int b) const {
    std::vector<bool> good(root.id() + 1, false);
    for (const uint32_t id : PostOrder(root)) {
      const UOp u = g_.at(id);
      const NodeFacts& f = FactsOf(u);
      bool all = !u.is(Op::kRange);
      for (const uint32_t s : u.src_ids()) all &= good[s];
      good[id] = (!f.has(a) && !f.has(b)) || (f.linear && f.stride[a] == f.stride[b]) || all;
    }
    return good[root.id()];
  }

  bool FindRanges() {
    const NodeFacts &x = FactsOf(out_.input), &w = FactsOf(out_.weight);
    out_.outer.clear();
    out_.row = out_.column = out_.outputs = out_.channels = UOp();
    std::vector<UOp> pixels, taps;
    for (const UOp loop : loops_) {
      const int r = IndexOf(loop);
      if (x.has(r) == w.has(r)) return false;
      if (x.has(r)) {
        pixels.push_back(loop);
      } else if (out_.outputs.valid()) {
        return false;
      } else {
        out_.outputs = loop;
      }
    }
    for (int i = 1; i < out_.reduce.num_src(); ++i) {
      const UOp range = out_.reduce.src(i);
      const int r = IndexOf(range);
      if (!x.has(r) || !w.has(r)) return false;
      const auto pixel = std::ranges::find_if(
          pixels, [&](UOp p) { return DependsOnSum(out_.input, IndexOf(p), r); });
      if (pixel != pixels.end() && range.src(0).const_word() == kWindow) {
        taps.push_back(range);
        (out_.row.valid() ? out_.column : out_.row) = *pixel;
        pixels.erase(pixel);
      } else if (out_.channels.valid()) {
        return false;
      } else {
        out_.channels = range;
      }
    }
    if (taps.size() != 2 || !out_.outputs.valid() || !out_.channels.valid()) return false;
    out_.row_tap = taps[0];
    out_.column_tap = taps[1];
    out_.outer = pixels;
    return true;
  }

  const UOp sink_;
  const Graph& g_;
  const std::vector<uint32_t> order_;
  std::vector<UOp> loops_;
  std::optional<RangeFacts> facts_;
  WindowProduct out_;
};

}  // namespace

std::optional<WindowProduct> FindWindowProduct(UOp sink) { return Finder(sink).Run(); }

}  // namespace telegrad
