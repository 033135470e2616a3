// Which ranges of a sum of products are joined, so that it is a product of two matrices: those of a
// convolution are its pixels, channels of the output, and channels and taps of the window. All that
// is reduced is joined, in the order in which the operand without gates has it in memory. The cost
// of the tiles decides how many ranges are joined for rows and for columns: short rows of an image
// leave parts of a tile unused, and images that are joined are stored element by element.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>

#include "engine/ir/product_tile.h"
#include "engine/lowering/heuristic.h"
#include "engine/lowering/join.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/workgroup_matmul.h"

namespace telegrad {
namespace {

using Chain = std::vector<int>;  // ranges, outermost first

class JoinPicker {
 public:
  JoinPicker(UOp sink, const KernelShape& shape, const Product& product, const Target& target)
      : sink_(sink), s_(shape), p_(product), target_(target) {}

  MoveList Run() {
    const Chain k = Ordered(p_.k, ReducedOperand());
    const Chain m = Ordered(p_.m, Store()), n = Ordered(p_.n, Store());
    if (!CanJoin(k, k.size())) return {};
    Choice best;
    for (size_t rows = 1; rows <= m.size(); ++rows) {
      for (size_t columns = 1; columns <= n.size(); ++columns) {
        if (!CanJoin(m, rows) || !CanJoin(n, columns)) continue;
        const double cost = CostOf(m, rows, n, columns);
        if (cost < best.cost) best = {cost, rows, columns};
      }
    }
    if (best.rows == 0) return {};
    MoveList moves;
    Join(k, k.size(), &moves);
    Join(m, best.rows, &moves);
    Join(n, best.columns, &moves);
    return moves;
  }

 private:
  struct Choice {
    double cost = std::numeric_limits<double>::infinity();
    size_t rows = 0, columns = 0;  // ranges that are joined
  };

  const MemoryAccess* AccessOf(UOp address) const {
    for (const Work& work : s_.works) {
      for (const MemoryAccess& a : work.accesses) {
        if (a.address == address) return &a;
      }
    }
    return nullptr;
  }

  const MemoryAccess* Store() const {
    for (const Work& work : s_.works) {
      for (const MemoryAccess& a : work.accesses) {
        if (a.store) return &a;
      }
    }
    return nullptr;
  }

  // The one whose elements are read in order: without a gate, else a.
  const MemoryAccess* ReducedOperand() const {
    const MemoryAccess* a = AccessOf(p_.a.src(0));
    const MemoryAccess* b = AccessOf(p_.b.src(0));
    return a->gate != 0 && b->gate == 0 ? b : a;
  }

  // By how far the access steps, if it does by a constant step along each, the longest step first;
  // else as the kernel has them.
  Chain Ordered(RangeSet set, const MemoryAccess* access) const {
    Chain out;
    for (int r : s_.outer) {
      if (Has(set, r)) out.push_back(r);
    }
    for (int i = 1; i < p_.reduce.num_src(); ++i) {
      const int r = s_.d.IndexOf(p_.reduce.src(i));
      if (Has(set, r)) out.push_back(r);
    }
    const bool regular = access != nullptr && std::ranges::none_of(out, [&](int r) {
                           return access->stride[r] == kIrregular;
                         });
    if (regular) {
      std::ranges::stable_sort(out, std::greater<>{},
                               [&](int r) { return std::abs(access->stride[r]); });
    }
    return out;
  }

  // Of the last `count` ranges of a chain.
  bool CanJoin(const Chain& chain, size_t count) const {
    const auto whole = [&](int r) { return Has(s_.whole | s_.around_nests | s_.inner, r); };
    const int last = chain.back();
    for (size_t i = chain.size() - count; i + 1 < chain.size(); ++i) {
      if (whole(chain[i]) || whole(last)) return false;
      if (!AreClosedTogether(sink_, s_.d.ranges[chain[i]], s_.d.ranges[last])) return false;
    }
    return true;
  }

  // What the tiles are of if the last `count` of the chain are joined: that range or a longer one,
  // see FindMatmul.
  struct Side {
    int64_t size = 1;
    bool stored_along;  // stores are neighbours along it
  };
  Side SideOf(const Chain& chain, size_t count) const {
    const auto along = [&](int r) { return Store() != nullptr && Store()->stride[r] == 1; };
    Side side{.stored_along = along(chain.back())};
    for (size_t i = chain.size() - count; i < chain.size(); ++i) side.size *= s_.size[chain[i]];
    for (size_t i = 0; i + count < chain.size(); ++i) {
      const int64_t size = s_.size[chain[i]];
      if (size > side.size || (size == side.size && along(chain[i])))
        side = {size, along(chain[i])};
    }
    return side;
  }

  // Whether every store steps over the joined range as over its innermost part.
  bool Continues(const Chain& chain, size_t count) const {
    for (const Work& work : s_.works) {
      for (const MemoryAccess& a : work.accesses) {
        for (size_t i = chain.size() - count; a.store && i + 1 < chain.size(); ++i) {
          const int outer = chain[i], inner = chain[i + 1];
          if (a.stride[outer] == kIrregular || a.stride[inner] == kIrregular) return false;
          if (a.stride[outer] != a.stride[inner] * s_.size[inner]) return false;
        }
      }
    }
    return true;
  }

  double CostOf(const Chain& m, size_t rows, const Chain& n, size_t columns) const {
    const Side of_m = SideOf(m, rows), of_n = SideOf(n, columns);
    ProductSizes sizes{.m = of_m.size,
                       .n = of_n.size,
                       .k = static_cast<int64_t>(s_.Iterations(p_.k)),
                       .batch = 1,
                       .dtype = p_.a.dtype()};
    sizes.batch =
        s_.Iterations(s_.parallel) / static_cast<double>(sizes.m) / static_cast<double>(sizes.n);
    const bool along_rows = StoresAlongRows(target_.matrix, sizes.dtype);
    if (along_rows ? of_n.stored_along : of_m.stored_along) std::swap(sizes.m, sizes.n);
    const std::optional<ProductTile> tile = PickTile(sizes, target_);
    if (!tile) return std::numeric_limits<double>::infinity();
    const bool scattered = !Continues(m, rows) || !Continues(n, columns);
    return CostOfProduct(sizes, *tile, scattered, target_);
  }

  // The last `count` become the innermost of them.
  void Join(const Chain& chain, size_t count, MoveList* moves) const {
    const int64_t inner = s_.d.ranges[chain.back()].range_id();
    for (size_t i = chain.size() - 1; i-- > chain.size() - count;) {
      moves->push_back(
          {.kind = Move::Kind::kJoin, .range = s_.d.ranges[chain[i]].range_id(), .inner = inner});
    }
  }

  const UOp sink_;
  const KernelShape& s_;
  const Product& p_;
  const Target& target_;
};

}  // namespace

MoveList PickJoins(UOp sink, const Target& target) {
  if (!Takes(target, Move::Kind::kJoin)) return {};
  const std::optional<KernelShape> shape = ReadShape(sink, target);
  const std::optional<Product> product = shape ? FindProduct(*shape) : std::nullopt;
  if (!product) return {};
  return JoinPicker(sink, *shape, *product, target).Run();
}

}  // namespace telegrad
