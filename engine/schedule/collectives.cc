#include "engine/schedule/collectives.h"

#include <algorithm>
#include <utility>

#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

// A CAT of more sources is built from parts in memory: a kernel reads from all sources of a CAT.
constexpr size_t kMaxCat = 16;

constexpr Op kFoldOps[] = {Op::kAdd, Op::kMul, Op::kMax};

// What is reduced in another type, in that type.
UOp Widen(Graph* g, UOp x) {
  return IsNarrowFloat(x.dtype()) ? g->Make(Op::kCast, DType::kFloat32, {x}) : x;
}
UOp Narrow(Graph* g, UOp x, DType dtype) {
  return x.valid() && x.dtype() != dtype ? g->Make(Op::kCast, dtype, {x}) : x;
}

// Collectives over the chunks of flat values.
class Chunked {
 public:
  Chunked(Graph* g, ReduceKind kind, std::span<const UOp> values, std::span<const int64_t> devices,
          Budget* budget)
      : g_(g),
        op_(kFoldOps[static_cast<size_t>(kind)]),
        kind_(kind),
        devices_(devices),
        dims_(values[0].shape().begin(), values[0].shape().end()),
        elements_(NumElements(dims_)),
        n_(values.size()),
        made_(n_),
        budget_(budget) {
    for (const UOp x : values) flat_.push_back(g->Make(Op::kReshape, {x}, Shape{elements_}));
  }

  std::vector<UOp> Run(AllReduceAlgorithm algorithm) {
    for (size_t c = 0; c < n_; ++c) {
      if (ChunkOf(elements_, static_cast<int64_t>(n_), static_cast<int64_t>(c)).size == 0) continue;
      algorithm == AllReduceAlgorithm::kRing ? Ring(c) : AllToAll(c);
    }
    std::vector<UOp> out;
    for (std::vector<UOp>& chunks : made_) {
      out.push_back(g_->Make(Op::kReshape, {Concatenate(g_, std::move(chunks), 0)}, dims_));
    }
    return out;
  }

 private:
  UOp ChunkAt(size_t c, size_t rank) {
    const Chunk chunk = ChunkOf(elements_, static_cast<int64_t>(n_), static_cast<int64_t>(c));
    return g_->Make(Op::kShrink, {flat_[rank]}, Shape{chunk.begin, chunk.size});
  }
  UOp To(UOp x, size_t rank) { return CopyTo(g_, x, devices_[rank], budget_); }

  void AllToAll(size_t c) {
    std::vector<UOp> parts;
    for (size_t rank = 0; rank < n_; ++rank) parts.push_back(To(ChunkAt(c, rank), c));
    const UOp folded = FoldValues(g_, kind_, parts);
    for (size_t rank = 0; rank < n_; ++rank) made_[rank].push_back(To(folded, rank));
  }

  void Ring(size_t c) {
    UOp sum = Widen(g_, ChunkAt(c, c));
    for (size_t step = 1; step < n_; ++step) {
      const size_t rank = (c + step) % n_;
      sum = g_->Make(op_, {To(sum, rank), Widen(g_, ChunkAt(c, rank))});
    }
    const size_t last = (c + n_ - 1) % n_;
    UOp moving = Narrow(g_, sum, flat_[0].dtype());
    for (size_t step = 0; step < n_; ++step) {
      const size_t rank = (last + step) % n_;
      moving = To(moving, rank);
      made_[rank].push_back(moving);
    }
  }

  Graph* g_;
  const Op op_;
  const ReduceKind kind_;
  const std::span<const int64_t> devices_;
  const Shape dims_;
  const int64_t elements_;
  const size_t n_;
  std::vector<UOp> flat_;               // by rank
  std::vector<std::vector<UOp>> made_;  // by rank, the chunks of the result
  Budget* const budget_;
};

// A value of no elements, anywhere.
UOp Empty(Graph* g, DType dtype, ShapeView dims) {
  const UOp one = IsFloat(dtype) ? g->ConstFloat(dtype, 1) : g->Const(dtype, 1);
  return g->Make(Op::kExpand, {g->Make(Op::kReshape, {one}, Shape(dims.size(), 1))}, dims);
}

}  // namespace

AllReduceAlgorithm ChooseAllReduce(int64_t bytes, int64_t instances, bool over_links) {
  if (bytes < kLinkCosts.parts_bytes || instances < 2) return AllReduceAlgorithm::kNaive;
  // Of two devices each is the other's neighbour, and an all-to-all needs fewer steps.
  const bool ring = over_links || bytes >= kLinkCosts.ring_bytes;
  if (ring && instances > 2) return AllReduceAlgorithm::kRing;
  return AllReduceAlgorithm::kAllToAll;
}

Chunk ChunkOf(int64_t elements, int64_t n, int64_t c) {
  const int64_t size = elements / n, longer = elements % n;
  return {c * size + std::min(c, longer), size + (c < longer ? 1 : 0)};
}

UOp CopyTo(Graph* g, UOp x, int64_t device, Budget* budget) {
  if (!x.valid() || x.devices().empty() || x.devices()[0] == device) return x;
  if (NumElements(x.shape()) == 0)
    return Empty(g, x.dtype(), Shape(x.shape().begin(), x.shape().end()));
  std::vector<UOp> views;  // from x down to what they are views of
  size_t smallest = 0;     // how many of them are taken on the other side
  UOp sent = x;
  for (UOp u = x; Is(u.op(), kMovement);) {
    views.push_back(u);
    u = u.src(0);
    const int64_t n = NumElements(u.shape());
    if (n == 0 || n > NumElements(sent.shape())) continue;
    sent = u;
    smallest = views.size();
  }
  const absl::Status spent = budget->SpendSteps(static_cast<int64_t>(views.size()) + 1);
  if (!spent.ok()) return g->Fail(spent);
  UOp out = g->Make(Op::kCopy, DType::kVoid, {sent}, {device});
  while (smallest > 0) {
    const UOp view = views[--smallest];
    const std::vector<int64_t> arg(view.arg().begin(), view.arg().end());
    out = g->Make(view.op(), {out}, arg);
  }
  return out;
}

UOp FoldValues(Graph* g, ReduceKind kind, std::span<const UOp> values) {
  UOp out = Widen(g, values[0]);
  for (const UOp x : values.subspan(1)) {
    out = g->Make(kFoldOps[static_cast<size_t>(kind)], {out, Widen(g, x)});
  }
  return Narrow(g, out, values[0].dtype());
}

UOp Concatenate(Graph* g, std::vector<UOp> parts, int64_t axis) {
  const int64_t arg[] = {axis};
  while (parts.size() > kMaxCat) {
    std::vector<UOp> joined;
    for (size_t i = 0; i < parts.size(); i += kMaxCat) {
      const auto group = std::span(parts).subspan(i, std::min(kMaxCat, parts.size() - i));
      const UOp cat = g->Make(Op::kCat, DType::kVoid, group, arg);
      joined.push_back(g->Make(Op::kContiguous, {cat}));
    }
    parts = std::move(joined);
  }
  return g->Make(Op::kCat, DType::kVoid, parts, arg);
}

std::vector<UOp> AllReduceInstances(Graph* g, ReduceKind kind, std::span<const UOp> values,
                                    std::span<const int64_t> devices, AllReduceAlgorithm algorithm,
                                    Budget* budget) {
  const auto n = static_cast<int64_t>(values.size());
  const UOp first = values[0];
  const int64_t elements = NumElements(first.shape());
  // What is anywhere, or on one device, moves nothing.
  const bool one_place =
      std::ranges::all_of(values, [&](UOp x) { return x.place() == first.place(); });
  const bool over_links = algorithm == AllReduceAlgorithm::kBySizeOverLinks;
  if (over_links || algorithm == AllReduceAlgorithm::kBySize) {
    algorithm = ChooseAllReduce(BytesOf(first.dtype(), elements), n, over_links);
  }
  if (one_place || elements == 0 || algorithm == AllReduceAlgorithm::kNaive) {
    std::vector<UOp> gathered;
    for (const UOp x : values) gathered.push_back(CopyTo(g, x, devices[0], budget));
    const UOp folded = FoldValues(g, kind, gathered);
    std::vector<UOp> out;
    for (const int64_t device : devices) out.push_back(CopyTo(g, folded, device, budget));
    return out;
  }
  return Chunked(g, kind, values, devices, budget).Run(algorithm);
}

}  // namespace telegrad
