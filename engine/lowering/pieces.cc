// For a range r of n iterations and pieces [p, q):
//
//   SplitPieces       r -> p + a range of q - p
//   SplitInnerLoops   the loop inside of r -> a range of WHERE(p <= r < q, its size, 0)
//
// and the comparisons of r with p or q, and with what is outside of [p, q), are replaced by what
// they are there.
#include "engine/lowering/pieces.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/runtime_tiles.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr size_t kMostPieces = 16;        // of a range; where there are more, some have several
constexpr size_t kMostPieceNodes = 4096;  // of all pieces of a kernel
constexpr int kMostPieceRanges = 48;      // of a kernel, because moves make more of them
constexpr int64_t kLeastAround = 4;       // iterations for each thread
constexpr int kMostPieceRounds = 8;
constexpr int64_t kFarthest = int64_t{1} << 62;  // that something is compared with

// Of a range with a constant: r < c is below c, and c < r is not below c + 1.
struct Comparison {
  UOp range;
  int64_t at = 0;
  bool below = true;  // true where r < at
};

std::optional<Comparison> ReadComparison(UOp u) {
  if (!u.is(Op::kCmpLt)) return std::nullopt;
  const UOp x = u.src(0), y = u.src(1);
  if (x.is(Op::kRange) && y.is_const()) return Comparison{x, y.const_word(), true};
  if (y.is(Op::kRange) && x.is_const() && x.const_word() < kFarthest)
    return Comparison{y, x.const_word() + 1, false};
  return std::nullopt;
}

// A nest that stores to an argument, by itself.
struct Nest {
  UOp nest = {};                 // an operand of the SINK
  std::vector<UOp> ranges = {};  // that it closes, outermost first
  size_t nodes = 0;
  std::vector<UOp> comparisons = {};  // that the value selects by
};

// Nothing where the value reduces or reads the memory that is stored to, where a loop's end is
// computed, or what is stored goes to private memory.
std::optional<Nest> ReadNest(UOp sink, UOp nest) {
  Nest out;
  out.nest = nest;
  UOp store = nest;
  for (; store.is(Op::kEnd); store = store.src(0)) {
    for (int i = 1; i < store.num_src(); ++i) {
      // An end that is computed may depend on what is around the loop.
      if (!store.src(i).src(0).is_const()) return std::nullopt;
      out.ranges.push_back(store.src(i));
    }
  }
  if (!store.is(Op::kStore) || !Memory(store.src(0)).is(Op::kParam)) return std::nullopt;
  const Graph& g = *sink.graph();
  absl::flat_hash_set<uint32_t> seen;
  // A node, and whether a selection's condition depends on it.
  std::vector<std::pair<UOp, bool>> stack{{store.src(1), false}};
  std::set<uint32_t> comparisons;
  absl::flat_hash_set<uint32_t> conditions;
  while (!stack.empty()) {
    const auto [u, condition] = stack.back();
    stack.pop_back();
    if (!(condition ? conditions : seen).insert(u.id()).second) continue;
    if (condition && ReadComparison(u)) comparisons.insert(u.id());
    if (u.is(Op::kRange) || u.is(Op::kIndex)) continue;
    for (int i = 0; i < u.num_src(); ++i) {
      const bool selects = u.is(Op::kWhere) && i == 0;
      const bool joins = condition && (u.is(Op::kAnd) || u.is(Op::kOr) || u.is(Op::kXor));
      stack.emplace_back(u.src(i), selects || joins);
    }
  }
  if (comparisons.empty()) return std::nullopt;
  const std::vector<uint32_t> order = PostOrder(nest);
  for (const uint32_t id : order) {  // addresses, too, may reduce or read what is stored
    const UOp u = g.at(id);
    if (u.is(Op::kReduce)) return std::nullopt;
    if (u.is(Op::kLoad) && Memory(u.src(0)) == Memory(store.src(0))) return std::nullopt;
  }
  out.nodes = order.size();
  for (const uint32_t id : comparisons) out.comparisons.push_back(g.at(id));
  return out;
}

// Where the range's pieces begin, and its size.
std::vector<int64_t> CutsOf(const Nest& nest, UOp range) {
  const int64_t size = SizeOf(range);
  std::set<int64_t> cuts;
  for (const UOp u : nest.comparisons) {
    const Comparison c = *ReadComparison(u);
    if (c.range == range && c.at > 0 && c.at < size) cuts.insert(c.at);
  }
  std::vector<int64_t> out{0};
  const size_t together = (cuts.size() + kMostPieces) / kMostPieces;  // of the cuts
  size_t i = 0;
  for (const int64_t cut : cuts) {
    if (++i % together == 0) out.push_back(cut);
  }
  out.push_back(size);
  return out;
}

class Splitter {
 public:
  Splitter(Rewriter& b, UOp sink, const Target& target)
      : b_(b), g_(*b.graph()), sink_(sink), target_(target), next_id_(NextRangeId(sink)) {
    for (uint32_t id : PostOrder(sink)) {
      const UOp u = g_.at(id);
      ranges_ += u.is(Op::kRange) ? 1 : 0;
      if (u.is(Op::kAfter)) waited_.insert(u.src_ids().begin() + 1, u.src_ids().end());
      if (u.is(Op::kEnd)) {
        for (int i = 1; i < u.num_src(); ++i) ++closers_[u.src(i).id()];
      }
    }
    nodes_ = PostOrder(sink).size();
  }

  // With one nest split; the same if there is none.
  UOp Early() {
    for (const UOp nest : Nests()) {
      const std::optional<Nest> read = Read(nest);
      if (!read) continue;
      for (size_t i = read->ranges.size(); i-- > 0;) {
        if (PaysEarly(*read, i)) return InPieces(*read, i);
      }
    }
    return sink_;
  }
  UOp Late() {
    for (const UOp nest : Nests()) {
      const std::optional<Nest> read = Read(nest);
      if (!read) continue;
      for (size_t i = 0; i < read->ranges.size(); ++i) {
        if (IsOwnLoop(*read, i) && Fits(*read, i, i)) return InPieces(*read, i);
        const size_t loop = LoopInside(*read, i);
        if (loop < read->ranges.size() && Fits(*read, i, loop)) return InLoops(*read, i, loop);
      }
    }
    return sink_;
  }

 private:
  std::vector<UOp> Nests() const {
    std::vector<UOp> out;
    for (int i = 0; i < sink_.num_src(); ++i) out.push_back(sink_.src(i));
    return out;
  }

  std::optional<Nest> Read(UOp nest) const {
    for (UOp u = nest; u.is(Op::kEnd); u = u.src(0)) {
      if (waited_.contains(u.id())) return std::nullopt;
    }
    return ReadNest(sink_, nest);
  }

  // Whether the kernel does not become too large: each piece has the ranges from `inner` on.
  bool Fits(const Nest& nest, size_t at, size_t inner) const {
    const size_t pieces = CutsOf(nest, nest.ranges[at]).size() - 1;
    if (pieces < 2 || nodes_ + (pieces - 1) * nest.nodes > kMostPieceNodes) return false;
    size_t own = 0;
    for (size_t i = inner; i < nest.ranges.size(); ++i) own += IsOwn(nest.ranges[i]) ? 1 : 0;
    return ranges_ + (pieces - 1) * own <= kMostPieceRanges;
  }

  static bool IsOwn(UOp range) { return !IsReplica(range) && !IsType(range, AxisType::kVector); }

  bool PaysEarly(const Nest& nest, size_t at) const {
    const UOp range = nest.ranges[at];
    if (!IsType(range, AxisType::kLoop) || !range.src(0).is_const() ||
        closers_.at(range.id()) != 1 || !Fits(nest, at, at)) {
      return false;
    }
    int64_t around = 1, inside = 1;
    for (size_t i = 0; i < nest.ranges.size(); ++i) {
      const UOp other = nest.ranges[i];
      if (!IsType(other, AxisType::kLoop) || !other.src(0).is_const()) return false;
      if (i != at) (i < at ? around : inside) *= SizeOf(other);
      if (i > at && closers_.at(other.id()) != 1) return false;
    }
    const auto pieces = static_cast<int64_t>(CutsOf(nest, range).size()) - 1;
    return around >= kLeastAround * target_.threads &&
           SizeOf(range) * inside >= pieces * target_.lanes();
  }

  // Whether the range and what is inside of it are no loops of other nests.
  bool IsOwnLoop(const Nest& nest, size_t at) const {
    const UOp range = nest.ranges[at];
    if (!IsType(range, AxisType::kLoop) || !range.src(0).is_const()) return false;
    for (size_t i = at; i < nest.ranges.size(); ++i) {
      if (IsOwn(nest.ranges[i]) && closers_.at(nest.ranges[i].id()) != 1) return false;
    }
    return true;
  }

  // The first loop inside of the range of which no comparison with it depends on; the number of
  // ranges if there is none.
  size_t LoopInside(const Nest& nest, size_t at) const {
    const size_t none = nest.ranges.size();
    const UOp range = nest.ranges[at];
    if (!IsType(range, AxisType::kThread) && !IsType(range, AxisType::kLoop)) return none;
    for (size_t i = at + 1; i < none; ++i) {
      const UOp loop = nest.ranges[i];
      if (IsType(loop, AxisType::kLoop) && loop.src(0).is_const() && SizeOf(loop) > 1 &&
          closers_.at(loop.id()) == 1) {
        return i;
      }
    }
    return none;
  }

  // What the comparisons with the range are in [begin, end).
  void Decide(UOp nest, UOp range, int64_t begin, int64_t end, Replacements* with) const {
    for (uint32_t id : PostOrder(nest)) {
      const std::optional<Comparison> c = ReadComparison(g_.at(id));
      if (!c || c->range != range || (begin < c->at && c->at < end)) continue;
      (*with)[id] = {g_.ConstWord(DType::kBool, (end <= c->at) == c->below ? 1 : 0), {}};
    }
  }

  void OwnRanges(const Nest& nest, size_t from, Replacements* with) {
    for (size_t i = from; i < nest.ranges.size(); ++i) {
      const UOp range = nest.ranges[i];
      if (!IsOwn(range)) continue;
      const UOp own = g_.Range(next_id_++, range.axis_type(), range.src(0));
      (*with)[range.id()] = {own, {own}};
    }
  }

  UOp InPieces(const Nest& nest, size_t at) {
    const UOp range = nest.ranges[at];
    const std::vector<int64_t> cuts = CutsOf(nest, range);
    std::vector<UOp> pieces;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int64_t size = cuts[i + 1] - cuts[i];
      Replacements with;
      Decide(nest.nest, range, cuts[i], cuts[i + 1], &with);
      if (size == 1) {
        with[range.id()] = {g_.Index(cuts[i]), {}};
      } else {
        const UOp own = g_.Range(next_id_++, range.axis_type(), g_.Index(size));
        with[range.id()] = {b_.Make(Op::kAdd, {own, g_.Index(cuts[i])}), {own}};
      }
      OwnRanges(nest, at + 1, &with);
      pieces.push_back(Substitute(b_, nest.nest, with));
    }
    return Splice(nest.nest, pieces);
  }

  UOp InLoops(const Nest& nest, size_t at, size_t inner) {
    const UOp range = nest.ranges[at], loop = nest.ranges[inner];
    const std::vector<int64_t> cuts = CutsOf(nest, range);
    std::vector<UOp> pieces;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int64_t begin = cuts[i], end = cuts[i + 1];
      UOp here;
      if (begin > 0) here = b_.Make(Op::kCmpLt, {g_.Index(begin - 1), range});
      if (i + 2 < cuts.size()) {
        const UOp below = b_.Make(Op::kCmpLt, {range, g_.Index(end)});
        here = here.valid() ? b_.Make(Op::kAnd, {here, below}) : below;
      }
      // What is loaded lies in the piece, which bounds of the range alone do not say.
      const UOp low = b_.Make(Op::kMax, {range, g_.Index(begin)});
      const UOp within =
          b_.Make(Op::kNeg, {b_.Make(Op::kMax, {b_.Make(Op::kNeg, {low}), g_.Index(1 - end)})});
      const UOp bounded = Rebuild(g_, nest.nest, [&](UOp u, std::vector<UOp>* src) {
        if (u.is(Op::kLoad) && src->front().is(Op::kIndex)) {
          const UOp address = src->front();
          std::vector<UOp> of(address.num_src());
          for (int k = 0; k < address.num_src(); ++k) of[k] = address.src(k);
          of[1] = Substitute(b_, of[1], {{range.id(), {within, {}}}});
          src->front() = g_.Make(Op::kIndex, DType::kVoid, of);
        }
        return WithSources(g_, u, *src);
      });
      if (!bounded.valid()) return {};
      Replacements with;
      Decide(bounded, range, begin, end, &with);
      OwnRanges(nest, inner, &with);
      const UOp ended = b_.Make(Op::kWhere, {here, loop.src(0), g_.Index(0)});
      const UOp own = g_.Range(next_id_++, loop.axis_type(), ended);
      with[loop.id()] = {own, {own}};
      pieces.push_back(Substitute(b_, bounded, with));
    }
    return Splice(nest.nest, pieces);
  }

  UOp Splice(UOp nest, const std::vector<UOp>& pieces) {
    std::vector<UOp> nests;
    for (int i = 0; i < sink_.num_src(); ++i) {
      if (sink_.src(i) == nest) {
        nests.insert(nests.end(), pieces.begin(), pieces.end());
      } else {
        nests.push_back(sink_.src(i));
      }
    }
    for (const UOp u : nests) {
      if (!u.valid()) return {};
    }
    return g_.Make(Op::kSink, DType::kVoid, nests);
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const Target& target_;
  int64_t next_id_;
  size_t ranges_ = 0, nodes_ = 0;
  absl::flat_hash_set<uint32_t> waited_;             // by an AFTER
  absl::flat_hash_map<uint32_t, int> closers_ = {};  // ENDs, by range
};

bool IsForVectors(const Target& target) {
  return target.has(ParallelLevel::kLanes) && target.has(ParallelLevel::kWorkers);
}

}  // namespace

UOp SplitPieces(Rewriter& b, UOp sink, const Target& target) {
  if (!IsForVectors(target)) return sink;
  for (int i = 0; i < kMostPieceRounds && sink.valid(); ++i) {
    const UOp split = Splitter(b, sink, target).Early();
    if (split == sink) break;
    sink = split;
  }
  return sink;
}

UOp SplitInnerLoops(Rewriter& b, UOp sink, const Target& target) {
  if (!IsForVectors(target)) return sink;
  for (int i = 0; i < kMostPieceRounds && sink.valid(); ++i) {
    const UOp split = Splitter(b, sink, target).Late();
    if (split == sink) break;
    sink = split;
  }
  return sink;
}

}  // namespace telegrad
