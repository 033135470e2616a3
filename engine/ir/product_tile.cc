#include "engine/ir/product_tile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "engine/ir/fragment.h"

namespace telegrad {
namespace {

double Tiles(int64_t size, int64_t tile) { return static_cast<double>((size + tile - 1) / tile); }

double Groups(const ProductSizes& p, const ProductTile& tile) {
  return p.batch * Tiles(p.m, tile.rows()) * Tiles(p.n, tile.columns());
}

bool Fits(const ProductSizes& p, const ProductTile& tile, bool any_rows) {
  const auto ceil = [](int64_t size) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  };
  return (any_rows || tile.rows() <= ceil(p.m)) && tile.columns() <= ceil(p.n) &&
         tile.k <= ceil(p.k);
}

}  // namespace

std::optional<MmaKind> MmaFor(MatrixUnit unit, DType dtype, int64_t columns) {
  for (const MmaInfo& mma : AllMmas()) {
    if (mma.unit == unit && mma.scope == Scope::kWarp && !mma.async && mma.a == dtype &&
        mma.b == dtype && mma.c == DType::kFloat32 && (columns == 0 || mma.n == columns)) {
      return mma.kind;
    }
  }
  return std::nullopt;
}

std::optional<MmaKind> SquareMmaFor(MatrixUnit unit, DType dtype) {
  for (const MmaInfo& mma : AllMmas()) {
    if (MmaFor(unit, dtype, mma.n) == mma.kind && mma.m == mma.n && mma.m == mma.k) return mma.kind;
  }
  return std::nullopt;
}

int64_t WarpElements(const Target& target) {
  return std::max<int64_t>(1, target.vector_bytes / ByteSize(DType::kFloat32));
}

int64_t WarpRows(const Target& target) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const std::optional<MmaKind> square = SquareMmaFor(target.matrix, dtype);
    if (square) return AllMmas()[static_cast<size_t>(*square)].m;
  }
  return WarpElements(target) * WarpElements(target);
}

int64_t PanelElements(int64_t rows, int64_t columns, int64_t k, const Target& target) {
  const int64_t padding = CostsOf(target).group.local_bytes;  // elements, at most, of each row
  return (rows + columns + 2 * padding) * (k + padding);
}

double CostOfProduct(const ProductSizes& p, const ProductTile& tile, bool scattered,
                     const Target& target) {
  const GroupCosts& costs = CostsOf(target).group;
  const double rate = p.dtype == DType::kFloat32 ? 1 : costs.instruction_rate;
  const auto rows = static_cast<double>(tile.rows()), columns = static_cast<double>(tile.columns());
  const double step =
      static_cast<double>(tile.k) * (rows * columns / rate + (rows + columns) * costs.copied);
  const double store = scattered ? costs.copied : costs.copied * 4 / target.vector_bytes;
  // The first tile is waited for.
  const double group = (Tiles(p.k, tile.k) + 1) * step + rows * columns * store;
  const double groups = Groups(p, tile);
  // While the last of them run, processors are left without work; what is computed in vain there
  // takes no time, but energy.
  const double rounds = std::ceil(groups / target.threads) * target.threads;
  return (rounds + groups) * group;
}

bool StoresAlongRows(MatrixUnit unit, DType dtype) {
  const FragmentRow* c = FindFragment(unit, 'c');
  if (c == nullptr || !MmaFor(unit, dtype)) return false;
  const FragmentDigit first = c->elements.all().front();
  return first.axis == 'm' && first.stride == 1;
}

double CostOfParts(double results, int64_t parts, const Target& target) {
  const GroupCosts& costs = CostsOf(target).group;
  const double moved = results * 2 * static_cast<double>(parts) * costs.partial;
  // Counted twice, as what all processors compute is in CostOfProduct.
  return 2 * (moved + costs.launch * target.threads);
}

std::optional<MmaKind> MmaOfTile(const ProductTile& tile, DType dtype, const Target& target) {
  for (const MmaInfo& mma : AllMmas()) {
    const bool fits = MmaFor(target.matrix, dtype, mma.n) == mma.kind;
    const bool divides = tile.m % mma.m == 0 && tile.n % mma.n == 0 && tile.k % mma.k == 0;
    if (fits && divides) return mma.kind;
  }
  return std::nullopt;
}

std::vector<ProductTile> RankTiles(const ProductSizes& p, const Target& target) {
  const GroupCosts& costs = CostsOf(target).group;
  const bool narrow = p.dtype != DType::kFloat32;
  if (!target.stages || (narrow && !MmaFor(target.matrix, p.dtype))) return {};
  std::vector<std::pair<double, ProductTile>> ranked;
  const bool turned = narrow && StoresAlongRows(target.matrix, p.dtype);
  const auto consider = [&](const ProductTile& tile, bool any_rows = false) {
    if (narrow && !MmaOfTile(tile, p.dtype, target)) return;
    const int64_t elements = PanelElements(tile.rows(), tile.columns(), tile.k, target);
    if (!Fits(p, tile, any_rows) || elements * ByteSize(p.dtype) > target.local_bytes) return;
    ranked.emplace_back(CostOfProduct(p, tile, /*scattered=*/false, target), tile);
  };
  const auto turn = [&](const ProductTile& t) {
    return turned ? ProductTile{t.threads_n, t.threads_m, t.n, t.m, t.k} : t;
  };
  for (const ProductTile& tile : narrow ? costs.instruction_tiles : costs.register_tiles) {
    consider(turn(tile));
  }
  if (narrow) {
    for (const ProductTile& tile : costs.skinny_tiles) consider(turn(tile), /*any_rows=*/true);
  }
  if (ranked.empty() && narrow) {  // for what is too small for these; an instruction has one shape
    for (const MmaInfo& mma : AllMmas()) {
      const bool fits = MmaFor(target.matrix, p.dtype, mma.n) == mma.kind;
      if (fits) consider({1, 1, mma.m, mma.n, mma.k});
    }
  }
  // Of tiles that cost the same, the one that stands first.
  std::ranges::stable_sort(ranked, {}, [](const auto& one) { return one.first; });
  std::vector<ProductTile> out;
  for (const auto& [cost, tile] : ranked) out.push_back(tile);
  return out;
}

std::optional<ProductTile> PickTile(const ProductSizes& p, const Target& target) {
  const std::vector<ProductTile> ranked = RankTiles(p, target);
  return ranked.empty() ? std::nullopt : std::optional(ranked.front());
}

}  // namespace telegrad
