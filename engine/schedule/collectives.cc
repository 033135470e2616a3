#include "engine/schedule/collectives.h"

#include <algorithm>
#include <utility>

#include "engine/schedule/size_words.h"
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

// The axis along which a value with symbolic sizes is divided: its longest fixed one; -1: none has
// more than one element.
int64_t LongestFixedAxis(UOp x) {
  int64_t longest = 1, axis = -1;
  for (size_t i = 0; i < x.shape().size(); ++i) {
    if (x.dim(static_cast<int>(i)).valid() || x.shape()[i] <= longest) continue;
    longest = x.shape()[i];
    axis = static_cast<int64_t>(i);
  }
  return axis;
}

// Collectives over the chunks of flat values; of values with symbolic sizes, over chunks along an
// axis, so that of each chunk the part that the run has is sent.
class Chunked {
 public:
  Chunked(Graph* g, ReduceKind kind, std::span<const UOp> values, std::span<const int64_t> devices,
          Budget* budget)
      : g_(g),
        op_(kFoldOps[static_cast<size_t>(kind)]),
        kind_(kind),
        devices_(devices),
        flatten_(!values[0].symbolic()),
        dims_(values[0].shape().begin(), values[0].shape().end()),
        axis_(flatten_ ? 0 : LongestFixedAxis(values[0])),
        elements_(flatten_ ? NumElements(dims_) : dims_[static_cast<size_t>(axis_)]),
        n_(values.size()),
        made_(n_),
        budget_(budget) {
    for (const UOp x : values) {
      whole_.push_back(flatten_ ? g->Make(Op::kReshape, {x}, Shape{elements_}) : x);
    }
  }

  std::vector<UOp> Run(AllReduceAlgorithm algorithm) {
    for (size_t c = 0; c < n_; ++c) {
      if (ChunkOf(elements_, static_cast<int64_t>(n_), static_cast<int64_t>(c)).size == 0) continue;
      algorithm == AllReduceAlgorithm::kRing ? Ring(c) : AllToAll(c);
    }
    std::vector<UOp> out;
    for (std::vector<UOp>& chunks : made_) {
      const UOp joined = Concatenate(g_, std::move(chunks), axis_);
      out.push_back(flatten_ ? g_->Make(Op::kReshape, {joined}, dims_) : joined);
    }
    return out;
  }

 private:
  UOp ChunkAt(size_t c, size_t rank) {
    const Chunk chunk = ChunkOf(elements_, static_cast<int64_t>(n_), static_cast<int64_t>(c));
    const UOp x = whole_[rank];
    SizeWords words(x);
    std::vector<int64_t> pairs;
    for (size_t i = 0; i < x.shape().size(); ++i) {
      if (static_cast<int64_t>(i) == axis_) {
        pairs.insert(pairs.end(), {chunk.begin, chunk.size});
      } else {
        pairs.insert(pairs.end(), {0, words.Dim(x, i)});
      }
    }
    return g_->Make(Op::kShrink, DType::kVoid, words.sources(), pairs);
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
    UOp moving = Narrow(g_, sum, whole_[0].dtype());
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
  const bool flatten_;
  const Shape dims_;
  const int64_t axis_;
  const int64_t elements_;  // along the axis
  const size_t n_;
  std::vector<UOp> whole_;              // by rank
  std::vector<std::vector<UOp>> made_;  // by rank, the chunks of the result
  Budget* const budget_;
};

// A value of no elements like `x`, anywhere.
UOp Empty(Graph* g, UOp x) {
  const UOp one = IsFloat(x.dtype()) ? g->ConstFloat(x.dtype(), 1) : g->Const(x.dtype(), 1);
  const UOp ones = g->Make(Op::kReshape, {one}, Shape(x.shape().size(), 1));
  SizeWords words(ones);
  std::vector<int64_t> dims;
  for (size_t i = 0; i < x.shape().size(); ++i) dims.push_back(words.Dim(x, i));
  return g->Make(Op::kExpand, DType::kVoid, words.sources(), dims);
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
  if (NumElements(x.shape()) == 0) return Empty(g, x);
  std::vector<UOp> views;  // from x down to what they are views of
  size_t smallest = 0;     // how many of them are taken on the other side
  bool shorter = false;    // one of them shows a part, whose length the run decides, of the next
  UOp sent = x;
  for (UOp u = x; Is(u.op(), kMovement);) {
    views.push_back(u);
    shorter |= u.is(Op::kShrink) && u.symbolic();
    u = u.src(0);
    const int64_t n = NumElements(u.shape()), least = NumElements(sent.shape());
    if (n == 0 || n > least || (n == least && shorter)) continue;
    sent = u;
    smallest = views.size();
    shorter = false;
  }
  const absl::Status spent = budget->SpendSteps(static_cast<int64_t>(views.size()) + 1);
  if (!spent.ok()) return g->Fail(spent);
  UOp out = g->Make(Op::kCopy, DType::kVoid, {sent}, {device});
  while (smallest > 0) out = ViewOf(g, views[--smallest], out);
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
  const bool whole = first.symbolic() && LongestFixedAxis(first) < 0;
  if (one_place || elements == 0 || whole || algorithm == AllReduceAlgorithm::kNaive) {
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
