// What the operands of a sum of products walk is found by Access, whatever views a client spelled a
// window with: an axis of the image that depends on a loop and on what is summed is moved by a
// window. An operand x becomes the view PERMUTE(CONTIGUOUS(PERMUTE(x))), which is x.
#include "engine/schedule/channels_last.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>

#include "engine/ir/product_tile.h"
#include "engine/rewrite/copier.h"
#include "engine/schedule/access.h"
#include "engine/schedule/drafts.h"

namespace telegrad {
namespace {

constexpr size_t kMostFactorViews = 64;  // beneath a factor

bool IsHalf(UOp u) { return u.dtype() == DType::kFloat16 || u.dtype() == DType::kBFloat16; }

// An operand of a product: the 16-bit value beneath its views and its conversion to f32.
struct Operand {
  std::vector<UOp> views;  // from the factor down
  UOp value;
  Access access;  // of the value, by the axes of the product
};

std::optional<Operand> OperandOf(UOp factor) {
  Operand out{.views = {}, .value = factor, .access = LoopAccess(factor.shape())};
  while (true) {
    const UOp u = out.value;
    const bool converts = u.is(Op::kCast) && u.dtype() == DType::kFloat32 && IsHalf(u.src(0));
    if (!converts && !Is(u.op(), kMovement)) break;
    if (out.views.size() == kMostFactorViews) return std::nullopt;
    if (!converts) out.access = AccessSource(u, out.access);
    out.views.push_back(u);
    out.value = u.src(0);
  }
  if (!IsHalf(out.value)) return std::nullopt;
  return out;
}

// The product's axes of more than one element, as the ranges of accesses are numbered.
struct ProductAxes {
  RangeSet summed = 0;
  std::vector<int64_t> size;
};

ProductAxes AxesOf(UOp reduce) {
  ProductAxes out;
  const ShapeView shape = reduce.src(0).shape();
  const std::span<const int64_t> axes = reduce.reduced_axes();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const bool summed = std::ranges::find(axes, static_cast<int64_t>(i)) != axes.end();
    if (summed) out.summed |= RangeSet{1} << out.size.size();
    out.size.push_back(shape[i]);
  }
  return out;
}

// Whether a window moves some axis of the operand.
bool HasWindow(const Operand& x, RangeSet summed) {
  return std::ranges::any_of(x.access.axes, [&](const AxisUse& a) {
    return (a.ranges & summed) != 0 && (a.ranges & ~summed) != 0;
  });
}

// The value's axis that is this range; -1: it is none alone.
int AxisThatIs(const Operand& x, int range, int64_t size) {
  int found = -1;
  for (size_t i = 0; i < x.access.axes.size(); ++i) {
    const RangeSet ranges = x.access.axes[i].ranges;
    if ((ranges >> range & 1) == 0) continue;
    if (found >= 0 || std::popcount(ranges) != 1 || x.value.shape()[i] != size) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

bool IsLast(const Operand& x, int axis) {
  const ShapeView shape = x.value.shape();
  return std::all_of(shape.begin() + axis + 1, shape.end(), [](int64_t n) { return n == 1; });
}

// How the operands of a product are stored: with these axes last.
struct Order {
  std::array<Operand, 2> operands;
  std::array<int, 2> last;
};

class OrderFinder {
 public:
  explicit OrderFinder(const Target& target) : target_(target) {}

  std::optional<Order> Find(UOp reduce) const {
    if (!reduce.is(Op::kReduce) || reduce.dtype() != DType::kFloat32 ||
        reduce.reduce_kind() != ReduceKind::kAdd || !reduce.src(0).is(Op::kMul)) {
      return std::nullopt;
    }
    const auto a = OperandOf(reduce.src(0).src(0)), b = OperandOf(reduce.src(0).src(1));
    if (!a || !b || a->value.dtype() != b->value.dtype()) return std::nullopt;
    const ProductAxes axes = AxesOf(reduce);
    if (HasWindow(*a, axes.summed) == HasWindow(*b, axes.summed)) return std::nullopt;
    std::optional<Order> best;
    int64_t longest = 0;
    const int64_t lanes = target_.vector_bytes / ByteSize(a->value.dtype());
    for (size_t r = 0; r < axes.size.size(); ++r) {
      if ((axes.summed >> r & 1) == 0 || axes.size[r] % lanes != 0) continue;
      const int range = static_cast<int>(r);
      const int of_a = AxisThatIs(*a, range, axes.size[r]);
      const int of_b = AxisThatIs(*b, range, axes.size[r]);
      if (of_a < 0 || of_b < 0 || axes.size[r] <= longest) continue;
      best = {{*a, *b}, {of_a, of_b}};
      longest = axes.size[r];
    }
    return best && PaysOff(*best, axes) ? best : std::nullopt;
  }

 private:
  bool PaysOff(const Order& order, const ProductAxes& axes) const {
    const GroupCosts& costs = CostsOf(target_).group;
    ProductSizes p{.m = 1, .n = 1, .k = 1, .batch = 1, .dtype = order.operands[0].value.dtype()};
    const RangeSet of_a = order.operands[0].access.ranges();
    const RangeSet of_b = order.operands[1].access.ranges();
    for (size_t r = 0; r < axes.size.size(); ++r) {
      const bool in_a = (of_a >> r & 1) != 0, in_b = (of_b >> r & 1) != 0;
      if ((axes.summed >> r & 1) != 0) {
        p.k *= axes.size[r];
      } else if (in_a != in_b) {
        (in_a ? p.m : p.n) *= axes.size[r];
      } else {
        p.batch *= static_cast<double>(axes.size[r]);
      }
    }
    const std::optional<ProductTile> tile = PickTile(p, target_);
    if (!tile) return false;
    // Of tiles of the operand with the window, of which each element was a copy by itself.
    const auto tiles = [](int64_t n, int64_t size) {
      return static_cast<double>((n + size - 1) / size);
    };
    const bool a_moves = HasWindow(order.operands[0], axes.summed);
    const auto rows = static_cast<double>(a_moves ? tile->rows() : tile->columns());
    const double copied = p.batch * tiles(p.m, tile->rows()) * tiles(p.n, tile->columns()) *
                          static_cast<double>(p.k) * rows;
    const int64_t lanes = target_.vector_bytes / ByteSize(p.dtype);
    const double saved = copied * (costs.apart - costs.copied / static_cast<double>(lanes));
    double spent = 0;
    for (size_t i = 0; i < order.operands.size(); ++i) {
      const Operand& x = order.operands[i];
      if (IsLast(x, order.last[i])) continue;
      const auto elements = static_cast<double>(NumElements(x.value.shape()));
      spent += elements * (costs.partial + costs.sector) + costs.launch * target_.threads;
    }
    return spent < saved;
  }

  const Target& target_;
};

// `x` with this axis the last in memory.
UOp StoredWithLast(Graph* g, UOp x, int axis) {
  const auto rank = static_cast<int64_t>(x.shape().size());
  std::vector<int64_t> there(static_cast<size_t>(rank)), back(there.size());
  std::iota(there.begin(), there.end(), 0);
  std::rotate(there.begin() + axis, there.begin() + axis + 1, there.end());
  for (int64_t i = 0; i < rank; ++i) back[static_cast<size_t>(there[static_cast<size_t>(i)])] = i;
  const UOp moved = g->Make(Op::kPermute, {x}, there);
  return g->Make(Op::kPermute, {g->Make(Op::kContiguous, {moved})}, back);
}

}  // namespace

absl::StatusOr<FrozenGraph> StoreChannelsLast(FrozenGraph graph, const Target& target,
                                              Budget* budget) {
  const Graph& from = *graph.graph;
  const OrderFinder finder(target);
  absl::flat_hash_map<uint32_t, Order> orders;  // by REDUCE
  for (uint32_t id : PostOrder(graph.root())) {
    TG_RETURN_IF_ERROR(budget->SpendSteps(1));
    if (std::optional<Order> found = finder.Find(from.at(id)))
      orders.emplace(id, *std::move(found));
  }
  if (orders.empty()) return graph;
  Copier copier(graph);
  Graph* const out = copier.out();
  return copier.Run(budget, [&](UOp u) {
    const auto it = orders.find(u.id());
    if (it == orders.end()) return copier.Same(u);
    std::vector<UOp> factors;
    for (size_t i = 0; i < it->second.operands.size(); ++i) {
      const Operand& x = it->second.operands[i];
      UOp factor = copier.Made(x.value);
      if (!IsLast(x, it->second.last[i])) {
        factor = StoredWithLast(out, factor, it->second.last[i]);
      }
      for (size_t v = x.views.size(); v-- > 0;) {
        factor = MakeLike(out, x.views[v], std::array{factor});
      }
      factors.push_back(factor);
    }
    return MakeLike(out, u, std::array{out->Make(Op::kMul, DType::kVoid, factors)});
  });
}

}  // namespace telegrad
