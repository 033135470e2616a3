// One walk that builds the graph anew. Where a source has become an UNSHARD, the op is asked
// whether it works shard by shard; if not, it takes the whole value, and only then is it gathered.
#include "engine/schedule/shard.h"

#include <algorithm>
#include <vector>

#include "engine/schedule/size_words.h"

namespace telegrad {
namespace {

// A value made of equal shards along an axis, one on each device of `x`.
struct Sharded {
  UOp x;
  int64_t axis = 0;
  int64_t count = 0;
  bool valid() const { return x.valid(); }
  int64_t local() const { return x.shape()[static_cast<size_t>(axis)]; }
};

Sharded AsSharded(UOp u) {
  if (!u.is(Op::kUnshard)) return {};  // the axis has a fixed size
  const auto count = static_cast<int64_t>(u.src(0).devices().size());
  if (count < 2) return {};
  return {u.src(0), u.axis(), count};
}

Shape WithDim(ShapeView dims, int64_t axis, int64_t size) {
  Shape out(dims.begin(), dims.end());
  out[static_cast<size_t>(axis)] = size;
  return out;
}

class Sharder {
 public:
  explicit Sharder(Graph* to) : g_(*to) {}

  // The node that `u` becomes over `src`, which are of the new graph.
  UOp Rewrite(UOp u, std::span<const UOp> src) {
    const UOp out = ByShard(u, src);
    return out.valid() ? out : g_.Make(u.op(), u.dtype(), src, u.arg());
  }

 private:
  // Invalid where the op takes whole values.
  UOp ByShard(UOp u, std::span<const UOp> src) {
    if (src.empty()) return {};
    if (u.is(Op::kShrink)) {
      if (const UOp one = OneShard(u, src); one.valid()) return one;
    }
    if (u.is(Op::kGather)) return Gather(src[0], src[1]);
    const auto first = std::ranges::find_if(src, [](UOp s) { return AsSharded(s).valid(); });
    if (first == src.end()) return {};
    const Sharded shards = AsSharded(*first);
    if (Is(u.op(), kAlu)) return Elementwise(u, shards, src);
    if (Is(u.op(), kMovement)) return View(u, shards, src);
    switch (u.op()) {
      case Op::kContiguous:
      case Op::kDetach:
        return Joined(g_.Make(u.op(), {shards.x}), shards.axis);
      case Op::kReduce:
        return Reduce(u, shards);
      case Op::kCat:
        return u.axis() == shards.axis ? UOp() : Elementwise(u, shards, src);
      default:
        return {};
    }
  }

  UOp Joined(UOp x, int64_t axis) { return g_.Make(Op::kUnshard, DType::kVoid, {x}, {axis}); }

  // Of CAT along another axis too: its sources differ in that one.
  UOp Elementwise(UOp u, const Sharded& like, std::span<const UOp> src) {
    // A width that changes mixes elements of the last axis.
    if (u.is(Op::kBitcast) && Info(u.dtype()).bits != Info(src[0].dtype()).bits) return {};
    std::vector<UOp> parts;
    for (const UOp s : src) {
      parts.push_back(s.shape().empty() ? s : Part(s, like));
      if (!parts.back().valid()) return {};
    }
    return Joined(g_.Make(u.op(), u.dtype(), parts, u.arg()), like.axis);
  }

  // What the device of each shard needs of `s`, a value that is whole everywhere or sharded alike.
  UOp Part(UOp s, const Sharded& like) {
    if (const Sharded other = AsSharded(s); other.valid()) {
      return other.axis == like.axis && other.x.place() == like.x.place() ? other.x : UOp();
    }
    if (s.place() != 0 && s.place() != like.x.place()) return {};
    const auto axis = static_cast<size_t>(like.axis);
    if (s.is(Op::kExpand) && s.src(0).shape()[axis] == 1) {  // the same for all
      SizeWords words(s.src(0));
      std::vector<int64_t> dims;
      for (size_t i = 0; i < s.shape().size(); ++i) {
        dims.push_back(i == axis ? like.local() : words.Dim(s, i));
      }
      return g_.Make(Op::kExpand, DType::kVoid, words.sources(), dims);
    }
    std::vector<UOp> parts;
    for (int64_t k = 0; k < like.count; ++k) {
      const UOp whole = s.place() == 0 ? s : g_.Make(Op::kMSelect, DType::kVoid, {s}, {k});
      SizeWords words(whole);
      std::vector<int64_t> pairs;
      for (size_t i = 0; i < s.shape().size(); ++i) {
        pairs.push_back(i == axis ? k * like.local() : 0);
        pairs.push_back(i == axis ? like.local() : words.Dim(s, i));
      }
      UOp part = g_.Make(Op::kShrink, DType::kVoid, words.sources(), pairs);
      const int64_t device = like.x.devices()[static_cast<size_t>(k)];
      if (s.place() == 0) part = g_.Make(Op::kCopy, DType::kVoid, {part}, {device});
      parts.push_back(part);
    }
    return g_.Make(Op::kMStack, DType::kVoid, parts);
  }

  // The movement op with this argument of the shards, with the sizes of the run that it names.
  UOp Moved(UOp u, const Sharded& s, std::span<const UOp> src, std::span<const int64_t> arg,
            int64_t axis) {
    std::vector<UOp> sources(src.begin(), src.end());
    sources[0] = s.x;
    return Joined(g_.Make(u.op(), DType::kVoid, sources, arg), axis);
  }

  // `src`: the node's, of which all but the first are sizes.
  UOp View(UOp u, const Sharded& s, std::span<const UOp> src) {
    const std::span<const int64_t> arg = u.arg();
    const auto axis = static_cast<size_t>(s.axis);
    const int64_t whole = s.local() * s.count;
    switch (u.op()) {
      case Op::kReshape: {
        // The axis whose outer part the shards are: as much lies before it as before. Sizes of the
        // run may be among what stays as it is in front.
        const auto same = [&](size_t i) {
          const UOp dim = s.x.dim(static_cast<int>(i));
          return arg[i] < 0 ? dim == src[static_cast<size_t>(-(arg[i] + 1))]
                            : !dim.valid() && arg[i] == s.x.shape()[i];
        };
        size_t kept = 0;
        while (kept < std::min(axis, arg.size()) && same(kept)) ++kept;
        int64_t before = 1, after = 1;
        for (size_t i = kept; i < axis; ++i) {
          if (s.x.dim(static_cast<int>(i)).valid()) return {};
          before *= s.x.shape()[i];
        }
        for (size_t j = kept; j < arg.size() && arg[j] >= 0; ++j) {
          if (after == before && arg[j] > 1 && arg[j] % s.count == 0) {
            const auto to = static_cast<int64_t>(j);
            return Moved(u, s, src, WithDim(arg, to, arg[j] / s.count), to);
          }
          after *= arg[j];
        }
        return {};
      }
      case Op::kExpand:
        return Moved(u, s, src, WithDim(arg, s.axis, s.local()), s.axis);
      case Op::kPermute: {
        const auto to = std::ranges::find(arg, s.axis) - arg.begin();
        return Joined(g_.Make(Op::kPermute, {s.x}, arg), to);
      }
      case Op::kFlip:
        if (std::ranges::find(arg, s.axis) != arg.end()) return {};
        return Joined(g_.Make(Op::kFlip, {s.x}, arg), s.axis);
      case Op::kPad:
      case Op::kShrink:
        if (arg[2 * axis] != 0 || arg[2 * axis + 1] != whole) return {};
        return Moved(u, s, src, WithDim(arg, 2 * s.axis + 1, s.local()), s.axis);
      default:
        return {};
    }
  }

  // A part within one shard is taken from there, for all instances or for the selected one.
  UOp OneShard(UOp u, std::span<const UOp> src) {
    const UOp from = src[0];
    const UOp whole = from.is(Op::kMSelect) ? from.src(0) : from;
    const Sharded s = AsSharded(whole);
    if (!s.valid() || s.local() == 0) return {};
    const auto axis = static_cast<size_t>(s.axis);
    std::vector<int64_t> pairs(u.arg().begin(), u.arg().end());
    const int64_t begin = pairs[2 * axis], size = pairs[2 * axis + 1];
    if (begin < 0 || size <= 0) return {};
    const int64_t shard = begin / s.local();
    if ((begin + size - 1) / s.local() != shard) return {};
    pairs[2 * axis] -= shard * s.local();
    std::vector<UOp> sources(src.begin(), src.end());
    sources[0] = g_.Make(Op::kMSelect, DType::kVoid, {s.x}, {shard});
    const UOp part = g_.Make(Op::kShrink, DType::kVoid, sources, pairs);
    if (from.is(Op::kMSelect) && from.number() == shard) return part;
    const std::vector<int64_t> devices(from.devices().begin(), from.devices().end());
    return g_.Make(Op::kCopy, {part}, devices);
  }

  UOp Reduce(UOp u, const Sharded& s) {
    const std::span<const int64_t> axes = u.reduced_axes();
    if (std::ranges::find(axes, s.axis) == axes.end()) {
      return Joined(g_.Make(Op::kReduce, {s.x}, u.arg()), s.axis);
    }
    const bool wide = IsNarrowFloat(u.dtype());
    const UOp x = wide ? g_.Make(Op::kCast, DType::kFloat32, {s.x}) : s.x;
    const UOp folded = g_.Make(Op::kReduce, {x}, u.arg());
    const UOp all = g_.Make(Op::kAllReduce, DType::kVoid, {folded}, {ToWord(u.reduce_kind())});
    return wide ? g_.Make(Op::kCast, u.dtype(), {all}) : all;
  }

  // Rows by a sharded index, or of a table whose rows are sharded.
  UOp Gather(UOp table, UOp index) {
    const Sharded rows = AsSharded(table), places = AsSharded(index);
    const auto alike = [](UOp other, const Sharded& s) {
      return other.place() == 0 || other.place() == s.x.place();
    };
    if (places.valid() && !rows.valid() && alike(table, places)) {
      return Joined(g_.Make(Op::kGather, {table, places.x}), places.axis);
    }
    if (rows.valid() && !places.valid() && rows.axis > 0 && alike(index, rows)) {
      const auto rank = static_cast<int64_t>(index.shape().size());
      return Joined(g_.Make(Op::kGather, {rows.x, index}), rank + rows.axis - 1);
    }
    return {};
  }

  Graph& g_;
};

}  // namespace

absl::StatusOr<FrozenGraph> ShardGraph(UOp sink, Budget* budget) {
  const Budget::Doing doing(budget, "sharding");
  const Graph& from = *sink.graph();
  auto graph = std::make_shared<Graph>();
  Budget::Held held(budget);
  Sharder sharder(graph.get());
  NodeMap<UOp> made(from);
  std::vector<UOp> src;
  for (const uint32_t id : PostOrder(sink)) {
    src.clear();
    for (const uint32_t s : from.src(id)) src.push_back(made[s]);
    const uint32_t before = graph->size();
    made[id] = sharder.Rewrite(from.at(id), src);
    if (!made[id].valid()) return graph->status();
    TG_RETURN_IF_ERROR(budget->SpendNodes(graph->size() - before + 1));
    if (id % 1024 == 0) TG_RETURN_IF_ERROR(held.GrowTo(graph->bytes()));
  }
  return FrozenGraph{std::move(graph), made[sink].id()};
}

}  // namespace telegrad
