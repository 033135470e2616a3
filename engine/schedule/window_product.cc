#include "engine/schedule/window_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "engine/base/checked.h"

namespace telegrad {
namespace {

constexpr size_t kMostRanges = 12;
constexpr int64_t kWindow = 3;

// What is known of a node: the ranges that it depends on, and what it is in them if it is an
// integer and linear.
struct Facts {
  uint32_t ranges = 0;
  bool linear = false;
  std::array<int64_t, kMostRanges> stride = {};
};

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
  int IndexOf(UOp range) const {
    return static_cast<int>(std::ranges::find(ranges_, range) - ranges_.begin());
  }
  static bool Has(uint32_t set, int r) { return (set >> r & 1) != 0; }

  // One STORE of a value with one sum, in loops of fixed sizes.
  bool CollectNodes() {
    UOp nest = sink_.src(0);
    for (; nest.is(Op::kEnd); nest = nest.src(0)) {
      for (int i = 1; i < nest.num_src(); ++i) loops_.push_back(nest.src(i));
    }
    if (!nest.is(Op::kStore) || nest.src(0).num_src() != 2) return false;
    out_.store = nest;
    facts_.resize(sink_.id() + 1);
    for (const uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (u.is(Op::kRange)) {
        if (ranges_.size() == kMostRanges || !u.src(0).is_const()) return false;
        if (u.src(0).const_word() < 1) return false;
        ranges_.push_back(u);
      }
      if (u.is(Op::kReduce)) {
        if (out_.reduce.valid() || u.dtype() != DType::kFloat32) return false;
        if (u.arg(0) != static_cast<int64_t>(ReduceKind::kAdd)) return false;
        out_.reduce = u;
      }
      if (u.is(Op::kAfter) || u.is(Op::kBuffer) || u.is(Op::kVar)) return false;
      FindFacts(u);
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

  void FindFacts(UOp u) {
    Facts& f = facts_[u.id()];
    for (const uint32_t s : u.src_ids()) f.ranges |= facts_[s].ranges;
    if (u.is(Op::kReduce) || u.is(Op::kEnd)) {
      for (int i = 1; i < u.num_src(); ++i) f.ranges &= ~(1u << IndexOf(u.src(i)));
    }
    if (u.is(Op::kRange)) {
      f.ranges = 1u << (ranges_.size() - 1);
      f.stride[ranges_.size() - 1] = 1;
    }
    f.linear = u.is(Op::kRange) || (u.dtype() == DType::kInt64 && AddsUp(u, &f));
  }

  bool AddsUp(UOp u, Facts* f) const {
    if (f->ranges == 0) return true;
    const auto source = [&](int i) -> const Facts& { return facts_[u.src(i).id()]; };
    const bool scaled = u.is(Op::kMul) && u.src(1).is_const();
    if (!scaled && !u.is(Op::kAdd) && !u.is(Op::kSub)) return false;
    if (!source(0).linear || (!scaled && !source(1).linear)) return false;
    for (size_t r = 0; r < kMostRanges; ++r) {
      const int64_t a = source(0).stride[r], b = scaled ? 0 : source(1).stride[r];
      const bool fits = scaled           ? CheckedMul(a, u.src(1).const_word(), &f->stride[r])
                        : u.is(Op::kAdd) ? CheckedAdd(a, b, &f->stride[r])
                                         : CheckedSub(a, b, &f->stride[r]);
      if (!fits) return false;
    }
    return true;
  }

  bool IsWeight() const {
    const UOp w = out_.weight;
    return w.is(Op::kLoad) && w.src(0).num_src() == 2 && w.src(0).src(0).is(Op::kParam) &&
           w.dtype() == DType::kFloat32 && facts_[w.src(0).src(1).id()].linear;
  }

  // Whether what `root` reads depends on these two ranges only through their sum.
  bool DependsOnSum(UOp root, int a, int b) const {
    std::vector<bool> good(root.id() + 1, false);
    for (const uint32_t id : PostOrder(root)) {
      const UOp u = g_.at(id);
      const Facts& f = facts_[id];
      bool all = !u.is(Op::kRange);
      for (const uint32_t s : u.src_ids()) all &= good[s];
      good[id] = (!Has(f.ranges, a) && !Has(f.ranges, b)) ||
                 (f.linear && f.stride[a] == f.stride[b]) || all;
    }
    return good[root.id()];
  }

  bool FindRanges() {
    const uint32_t x = facts_[out_.input.id()].ranges, w = facts_[out_.weight.id()].ranges;
    out_.outer.clear();
    out_.row = out_.column = out_.outputs = out_.channels = UOp();
    std::vector<UOp> pixels, taps;
    for (const UOp loop : loops_) {
      const int r = IndexOf(loop);
      if (Has(x, r) == Has(w, r)) return false;
      if (Has(x, r)) {
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
      if (!Has(x, r) || !Has(w, r)) return false;
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
  std::vector<UOp> ranges_, loops_;
  std::vector<Facts> facts_;
  WindowProduct out_;
};

}  // namespace

std::optional<WindowProduct> FindWindowProduct(UOp sink) { return Finder(sink).Run(); }

}  // namespace telegrad
