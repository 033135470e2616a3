#include "engine/schedule/byte_products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/rewrite/copier.h"
#include "engine/schedule/access.h"
#include "engine/schedule/drafts.h"

namespace telegrad {
namespace {

constexpr int64_t kExact = int64_t{1} << 24;  // f32 has all integers up to here
constexpr int64_t kMostFloatParts = 16;       // of a sum; each is added to the result in memory
constexpr size_t kMostOperandNodes = 64;      // between a product and its bytes
constexpr int64_t kManyTerms = 8;             // of an axis

bool IsByte(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUInt8; }

bool IsSumOfProducts(UOp u) {
  return u.is(Op::kReduce) && u.dtype() == DType::kInt32 && u.reduce_kind() == ReduceKind::kAdd &&
         u.src(0).is(Op::kMul) && !u.symbolic() && !u.src(0).symbolic();
}

int64_t LargestOf(UOp x) {
  const Interval bounds = x.bounds();
  return bounds.lo < -kExact ? kExact : std::max(-bounds.lo, bounds.hi);
}

// What a factor is made of: i32, and the bytes beneath.
struct ByteFactor {
  std::vector<uint32_t> nodes;                // of i32, with views
  std::vector<std::pair<UOp, Access>> bytes;  // which one, and how it is reached
};

std::optional<ByteFactor> ByteFactorOf(UOp factor) {
  ByteFactor out;
  std::vector<std::pair<UOp, Access>> stack{{factor, LoopAccess(factor.shape())}};
  while (!stack.empty()) {
    auto [u, access] = std::move(stack.back());
    stack.pop_back();
    if (u.symbolic() || out.nodes.size() == kMostOperandNodes) return std::nullopt;
    if (u.is(Op::kConst)) continue;
    out.nodes.push_back(u.id());
    if (u.is(Op::kCast) && IsByte(u.src(0).dtype())) {
      out.bytes.emplace_back(u.src(0), std::move(access));
    } else if (Is(u.op(), kMovement)) {
      Access below = AccessSource(u, access);
      stack.emplace_back(u.src(0), std::move(below));
    } else if (u.is(Op::kAdd) || u.is(Op::kSub)) {
      for (int i = 0; i < u.num_src(); ++i) {
        stack.emplace_back(u.src(i), u.src(i).shape().empty() ? Access() : access);
      }
    } else {
      return std::nullopt;
    }
  }
  return out;
}

// The bytes of the factor that are summed over, if they are one value's; views between them and
// their conversion are passed.
std::optional<std::pair<UOp, Access>> SummedBytes(const ByteFactor& factor, RangeSet summed) {
  std::optional<std::pair<UOp, Access>> found;
  for (const auto& [u, access] : factor.bytes) {
    if ((access.ranges() & summed) == 0) continue;
    if (found) return std::nullopt;
    found = {u, access};
    while (Is(found->first.op(), kMovement)) {
      found->second = AccessSource(found->first, found->second);
      found->first = found->first.src(0);
    }
  }
  return found;
}

// Whether the range walks along an axis of the value, and no other that is summed does. One of few
// terms walks alone: else it is most likely a window's, whose places overlap.
bool IsAxis(const std::pair<UOp, Access>& x, RangeSet summed, int range, bool many) {
  int found = 0;
  for (const AxisUse& axis : x.second.axes) {
    if ((axis.ranges >> range & 1) == 0) continue;
    if (std::popcount(axis.ranges & (many ? summed : ~RangeSet{0})) != 1) return false;
    ++found;
  }
  return found == 1;
}

// The nodes of both factors of a sum of products of bytes along an axis that both have.
std::optional<absl::flat_hash_set<uint32_t>> OperandsOf(UOp reduce) {
  if (!IsSumOfProducts(reduce)) return std::nullopt;
  const RangeSet summed = SummedAxes(reduce);
  absl::flat_hash_set<uint32_t> nodes;
  std::vector<std::pair<UOp, Access>> sides;
  for (int i = 0; i < 2; ++i) {
    const std::optional<ByteFactor> factor = ByteFactorOf(reduce.src(0).src(i));
    if (!factor) return std::nullopt;
    auto bytes = SummedBytes(*factor, summed);
    if (!bytes) return std::nullopt;
    sides.push_back(*std::move(bytes));
    nodes.insert(factor->nodes.begin(), factor->nodes.end());
  }
  int range = 0;
  for (const int64_t size : reduce.src(0).shape()) {
    if (size == 1) continue;
    const bool inside = (summed >> range & 1) != 0 && size >= kLeastDotTerms;
    if (inside && std::ranges::all_of(sides, [&](const auto& side) {
          return IsAxis(side, summed, range, size >= kManyTerms);
        })) {
      return nodes;
    }
    ++range;
  }
  return std::nullopt;
}

// The longest axis that is reduced, and the terms of all of them.
struct Terms {
  int64_t axis = -1, all = 1;
};
Terms TermsOf(UOp reduce) {
  const ShapeView shape = reduce.src(0).shape();
  Terms out;
  for (const int64_t axis : reduce.reduced_axes()) {
    out.all *= shape[static_cast<size_t>(axis)];
    if (out.axis < 0 || shape[static_cast<size_t>(axis)] > shape[static_cast<size_t>(out.axis)]) {
      out.axis = axis;
    }
  }
  return out;
}

// How many elements of the longest axis each part of a sum has; 0: it stays as it is.
int64_t FloatPartOf(UOp reduce) {
  if (!IsSumOfProducts(reduce)) return 0;
  const int64_t most = ExactTerms(reduce.src(0).src(0), reduce.src(0).src(1));
  const Terms terms = TermsOf(reduce);
  if (most == 0 || terms.axis < 0 || terms.all == 0) return 0;
  const int64_t size = reduce.src(0).shape()[static_cast<size_t>(terms.axis)];
  const int64_t along = most / (terms.all / size);
  const int64_t parts = along == 0 ? 0 : (size + along - 1) / along;
  return parts == 0 || parts > kMostFloatParts ? 0 : (size + parts - 1) / parts;
}

// The factor as f32: what its views are of is, so that it is converted once where it is stored.
UOp CastBelowViews(Copier* copier, UOp factor) {
  std::vector<UOp> views;
  for (; Is(factor.op(), kMovement) && factor.num_src() == 1; factor = factor.src(0)) {
    views.push_back(factor);
  }
  UOp out = copier->out()->Make(Op::kCast, DType::kFloat32, {copier->Made(factor)}, {});
  for (size_t i = views.size(); i-- > 0;) {
    out = MakeLike(copier->out(), views[i], std::array{out});
  }
  return out;
}

// The same sum, of which each part has so many elements of the longest axis.
UOp InFloat(Copier* copier, UOp reduce, int64_t each) {
  Graph* const g = copier->out();
  const UOp x = CastBelowViews(copier, reduce.src(0).src(0));
  const UOp y = CastBelowViews(copier, reduce.src(0).src(1));
  const ShapeView shape = reduce.src(0).shape();
  const auto axis = static_cast<size_t>(TermsOf(reduce).axis);
  UOp sum;
  for (int64_t first = 0; first < shape[axis]; first += each) {
    const int64_t size = std::min(each, shape[axis] - first);
    const auto part = [&](UOp factor) {
      if (size < shape[axis] && !factor.shape().empty()) {
        std::vector<int64_t> pairs;
        for (size_t i = 0; i < shape.size(); ++i) {
          pairs.insert(pairs.end(), {i == axis ? first : 0, i == axis ? size : shape[i]});
        }
        factor = g->Make(Op::kShrink, {factor}, pairs);
      }
      return factor;
    };
    const UOp product = g->Make(Op::kMul, {part(x), part(y)});
    const UOp floats = MakeLike(g, reduce, std::array{product});
    const UOp whole = g->Make(Op::kCast, DType::kInt32, {floats}, {});
    sum = sum.valid() ? g->Make(Op::kAdd, {sum, whole}) : whole;
  }
  return sum;
}

}  // namespace

RangeSet SummedAxes(UOp reduce) {
  const ShapeView shape = reduce.src(0).shape();
  RangeSet summed = 0;
  int range = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const auto axes = reduce.reduced_axes();
    if (std::ranges::find(axes, static_cast<int64_t>(i)) != axes.end()) {
      summed |= RangeSet{1} << range;
    }
    ++range;
  }
  return summed;
}

bool AddsBytes(UOp reduce) {
  if (!OperandsOf(reduce)) return false;
  const int64_t x = LargestOf(reduce.src(0).src(0)), y = LargestOf(reduce.src(0).src(1));
  const int64_t most = std::numeric_limits<int32_t>::max();
  return x < kExact && y < kExact && TermsOf(reduce).all <= most / std::max<int64_t>(x * y, 1);
}

int64_t ExactTerms(UOp x, UOp y) {
  const int64_t a = std::max<int64_t>(LargestOf(x), 1), b = std::max<int64_t>(LargestOf(y), 1);
  return a >= kExact || b >= kExact ? 0 : kExact / (a * b);
}

bool IsExactInFloat(UOp reduce) {
  if (!IsSumOfProducts(reduce)) return false;
  return TermsOf(reduce).all <= ExactTerms(reduce.src(0).src(0), reduce.src(0).src(1));
}

SumsOfBytes FindSumsOfBytes(UOp sink, Budget* budget) {
  SumsOfBytes out;
  for (const uint32_t id : PostOrder(sink)) {
    if (!budget->SpendSteps(1).ok()) break;  // the next one who spends reports it
    auto operands = OperandsOf(sink.graph()->at(id));
    if (!operands) continue;
    out.sums.insert(id);
    out.operands.merge(*operands);
  }
  return out;
}

absl::StatusOr<FrozenGraph> AddSmallProductsInFloat(FrozenGraph graph, bool dots, Budget* budget) {
  const Graph& from = *graph.graph;
  absl::flat_hash_map<uint32_t, int64_t> parts;  // by REDUCE
  for (const uint32_t id : PostOrder(graph.root())) {
    TG_RETURN_IF_ERROR(budget->SpendSteps(1));
    const UOp u = from.at(id);
    const int64_t each = FloatPartOf(u);
    if (each > 0 && !(dots && OperandsOf(u))) parts.emplace(id, each);
  }
  if (parts.empty()) return graph;
  Copier copier(graph);
  return copier.Run(budget, [&](UOp u) {
    const auto part = parts.find(u.id());
    return part == parts.end() ? copier.Same(u) : InFloat(&copier, u, part->second);
  });
}

}  // namespace telegrad
