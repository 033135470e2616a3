#include "engine/schedule/row_nests.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "engine/schedule/range_facts.h"

namespace telegrad {
namespace {

// The value and what it is computed from, each once, without what is behind a leaf.
template <typename IsLeaf>
std::vector<UOp> NodesUpTo(UOp value, const IsLeaf& is_leaf) {
  std::vector<UOp> nodes;
  absl::flat_hash_set<uint32_t> seen;
  for (std::vector<UOp> stack{value}; !stack.empty();) {
    const UOp u = stack.back();
    stack.pop_back();
    if (!seen.insert(u.id()).second) continue;
    nodes.push_back(u);
    for (int i = 0; !is_leaf(u) && i < u.num_src(); ++i) stack.push_back(u.src(i));
  }
  return nodes;
}

UOp BufferOf(UOp memory) {
  while (memory.is(Op::kAfter)) memory = memory.src(0);
  return memory;
}

bool IsFoldOf(UOp u, ReduceKind kind) {
  return u.is(Op::kReduce) && u.num_src() == 2 && u.reduce_kind() == kind &&
         u.src(1).src(0).is_const() && u.dtype() == DType::kFloat32;
}

// END(STORE, range), where the STORE is to AFTER(BUFFER, shared...) at the range.
std::optional<RowNest> NestOf(UOp end, std::span<const UOp> shared) {
  if (!end.is(Op::kEnd) || end.num_src() != 2 || !end.src(0).is(Op::kStore)) return std::nullopt;
  const RowNest nest{end.src(0), end.src(1)};
  const UOp index = nest.store.src(0), memory = index.src(0);
  const bool own = memory.is(Op::kAfter) && memory.src(0).is(Op::kBuffer) &&
                   memory.num_src() == 1 + static_cast<int>(shared.size()) &&
                   index.num_src() == 2 && index.src(1) == nest.range &&
                   nest.range.src(0).is_const() &&
                   memory.src(0).elements() == RangeFacts::Size(nest.range);
  for (size_t i = 0; own && i < shared.size(); ++i) {
    if (memory.src(static_cast<int>(i) + 1) != shared[i]) return std::nullopt;
  }
  return own ? std::optional(nest) : std::nullopt;
}

class RowNestFinder {
 public:
  explicit RowNestFinder(const FrozenGraph& kernel) : sink_(kernel.root()), g_(*kernel.graph) {}

  std::optional<RowNests> Run() {
    const bool found = FindNests() && FindWeighted() && FindWeights() && IsAlone();
    return found ? std::optional(std::move(out_)) : std::nullopt;
  }

 private:
  // The three nests, whose outer loops are the same.
  bool FindNests() {
    if (sink_.num_src() != 3) return false;
    std::array<UOp, 3> ends;
    for (int i = 0; i < 3; ++i) {
      UOp end = sink_.src(i);
      if (!end.is(Op::kEnd) || !end.src(0).is(Op::kEnd)) return false;
      std::vector<UOp> loops;
      for (int s = 1; s < end.num_src(); ++s) loops.push_back(end.src(s));
      if (i > 0 && loops != out_.shared) return false;
      out_.shared = loops;
      ends[static_cast<size_t>(i)] = end.src(0);
    }
    for (const UOp loop : out_.shared) {
      if (!loop.src(0).is_const()) return false;
      out_.rows *= RangeFacts::Size(loop);
    }
    const auto scores = NestOf(ends[0], out_.shared), weights = NestOf(ends[1], out_.shared);
    if (!scores || !weights || RangeFacts::Size(scores->range) != RangeFacts::Size(weights->range))
      return false;
    out_.scores = *scores;
    out_.weights = *weights;
    const UOp last = ends[2];
    if (last.num_src() != 2 || !last.src(0).is(Op::kStore)) return false;
    out_.root = last.src(0);
    out_.channel = last.src(1);
    return out_.channel.src(0).is_const() && out_.root.src(0).src(0).is(Op::kParam) &&
           out_.scores.store.src(1).dtype() == DType::kFloat32;
  }

  bool FindWeighted() {
    for (const UOp u : NodesOf(out_.root.src(1))) {
      if (!IsFoldOf(u, ReduceKind::kAdd) || !u.src(0).is(Op::kMul)) continue;
      for (int i = 0; i < 2; ++i) {
        if (!out_.weights.Stores(u.src(0).src(i), u.src(1))) continue;
        if (out_.weighted.valid()) return false;
        out_.weighted = u;
        out_.value = u.src(0).src(1 - i);
      }
    }
    return out_.weighted.valid() &&
           RangeFacts::Size(out_.weighted.src(1)) == RangeFacts::Size(out_.scores.range);
  }

  // The exponential of the weights, the maximum that its argument has, and the sum.
  bool FindWeights() {
    const std::vector<UOp> nodes = OutsideReductions(out_.weights.store.src(1));
    for (const UOp u : nodes) {
      if (u.is(Op::kExp2)) {
        if (out_.exponential.valid()) return false;
        out_.exponential = u;
      } else if (IsFoldOf(u, ReduceKind::kMax)) {
        if (out_.maximum.valid()) return false;
        out_.maximum = u;
      } else if (IsFoldOf(u, ReduceKind::kAdd)) {
        if (out_.sum.valid()) return false;
        out_.sum = u;
      } else if (u.is(Op::kReduce)) {
        return false;
      }
    }
    if (!out_.exponential.valid() || !out_.maximum.valid()) return false;
    const int64_t keys = RangeFacts::Size(out_.scores.range);
    if (RangeFacts::Size(out_.maximum.src(1)) != keys ||
        !out_.scores.Stores(out_.maximum.src(0), out_.maximum.src(1))) {
      return false;
    }
    if (out_.sum.valid() && (RangeFacts::Size(out_.sum.src(1)) != keys ||
                             !IsSameAt(out_.sum.src(0), out_.sum.src(1), out_.exponential))) {
      return false;
    }
    out_.difference = out_.exponential.src(0);
    if (out_.difference.is(Op::kMul)) {
      const int at = out_.difference.src(1).is_const() ? 0 : 1;
      if (!out_.difference.src(1 - at).is_const()) return false;
      out_.difference = out_.difference.src(at);
    }
    return out_.difference.is(Op::kSub) && IsShift(out_.difference.src(1)) && IsFactor();
  }

  // Whether `u` is at `range` what `v` is at the range of the weights.
  bool IsSameAt(UOp u, UOp range, UOp v) const {
    absl::flat_hash_set<std::pair<uint32_t, uint32_t>> seen;
    for (std::vector<std::pair<UOp, UOp>> stack{{u, v}}; !stack.empty();) {
      const auto [x, y] = stack.back();
      stack.pop_back();
      if (x == range || y == out_.weights.range) {
        if (x != range || y != out_.weights.range) return false;
        continue;
      }
      if (x == y || !seen.emplace(x.id(), y.id()).second) continue;
      if (x.op() != y.op() || x.dtype() != y.dtype() || x.num_src() != y.num_src() ||
          !std::ranges::equal(x.arg(), y.arg())) {
        return false;
      }
      for (int i = 0; i < x.num_src(); ++i) stack.emplace_back(x.src(i), y.src(i));
    }
    return true;
  }

  // The nodes of a value that are no part of its reductions.
  static std::vector<UOp> OutsideReductions(UOp value) {
    return NodesUpTo(value, [](UOp u) { return u.is(Op::kReduce) || u.is(Op::kLoad); });
  }

  // Whether it is the maximum, or what takes its place where that is not finite.
  bool IsShift(UOp shift) const {
    if (shift == out_.maximum) return true;
    if (!shift.is(Op::kWhere)) return false;
    const UOp finite = shift.src(0), x = finite.num_src() == 2 ? finite.src(0) : UOp();
    return finite.is(Op::kCmpEq) && x.is(Op::kSub) && x.src(0) == out_.maximum &&
           x.src(1) == out_.maximum && IsZero(finite.src(1)) && shift.src(1) == out_.maximum &&
           shift.src(2).is_const();
  }

  // Whether a weight is its exponential times or by numbers of the row.
  bool IsFactor() const {
    UOp u = out_.weights.store.src(1);
    while (u != out_.exponential) {
      const auto has = [&](UOp x) {
        const std::vector<UOp> nodes = OutsideReductions(x);
        return std::ranges::any_of(nodes, [&](UOp n) {
          return n == out_.weights.range || n.is(Op::kLoad) || n == out_.exponential;
        });
      };
      if (u.is(Op::kFDiv) && !has(u.src(1))) {
        u = u.src(0);
      } else if (u.is(Op::kMul) && !has(u.src(1))) {
        u = u.src(0);
      } else if (u.is(Op::kMul) && !has(u.src(0))) {
        u = u.src(1);
      } else if (u.is(Op::kWhere) && !has(u.src(0)) && IsZero(u.src(1))) {
        u = u.src(2);  // of a row without a visible score
      } else {
        return false;
      }
    }
    return true;
  }

  static bool IsZero(UOp u) { return u.is_const() && u.const_word() == 0; }

  // Whether nothing else reads the scores, the weights or what comes of them, and no value depends
  // on the places of others.
  bool IsAlone() const {
    int loads = 0;
    for (const uint32_t id : PostOrder(sink_)) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kLoad)) continue;
      const UOp memory = BufferOf(u.src(0).src(0));
      if (memory == out_.weights.buffer()) ++loads;
      if (memory == out_.scores.buffer() &&
          (u.src(0).num_src() != 2 || !u.src(0).src(1).is(Op::kRange)))
        return false;
    }
    const std::vector<UOp> used = NodesOf(out_.root.src(1)), of_value = NodesOf(out_.value);
    const auto loads_buffer = [](UOp u) { return u.is(Op::kAfter); };
    return loads == 1 && std::ranges::none_of(of_value, loads_buffer) &&
           std::ranges::count_if(used, loads_buffer) == 1 && out_.root.src(0).num_src() == 2;
  }

  const UOp sink_;
  const Graph& g_;
  RowNests out_;
};

}  // namespace

bool RowNest::Stores(UOp u, UOp range) const {
  return u.is(Op::kLoad) && u.src(0).num_src() == 2 && u.src(0).src(1) == range &&
         BufferOf(u.src(0).src(0)) == buffer();
}

// The nodes that a value is computed from in its own nest: not those of the nests that it waits
// for.
std::vector<UOp> NodesOf(UOp value) {
  return NodesUpTo(value, [](UOp u) { return u.is(Op::kAfter); });
}

std::optional<RowNests> FindRowNests(const FrozenGraph& kernel) {
  return RowNestFinder(kernel).Run();
}

}  // namespace telegrad
