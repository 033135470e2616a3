// Moves are drawn in the order in which a list has them: peels or joins, then splits, then the
// order of the loops. A matrix product for workgroups gets, now and then, the moves that stage it,
// with amounts drawn.
#include "tests/conformance/random_moves.h"

#include <algorithm>
#include <span>
#include <vector>

#include "engine/ir/product_tile.h"
#include "engine/lowering/heuristic.h"
#include "engine/lowering/workgroup_matmul.h"

namespace telegrad::testing {
namespace {

using Kind = Move::Kind;

constexpr Kind kPeels[] = {Kind::kPeel};
constexpr Kind kShares[] = {Kind::kLocal, Kind::kLocal, Kind::kUpcast, Kind::kUnroll, Kind::kGroup};
constexpr Kind kThreads[] = {Kind::kThread};
constexpr Kind kOrders[] = {Kind::kOuter, Kind::kOuter, Kind::kBlock};
constexpr Kind kJoins[] = {Kind::kJoin};

// Now and then what no kernel for this target can have.
std::vector<Kind> All() {
  std::vector<Kind> all;
  for (const MoveRow& row : AllMoves()) all.push_back(row.kind);
  return all;
}

// What every target splits ranges by, the most frequent ones twice.
std::vector<Kind> Splits() {
  std::vector<Kind> splits;
  for (const MoveRow& row : AllMoves()) {
    if (!row.splits() || row.levels != ParallelLevels()) continue;
    splits.insert(splits.end(), row.kind == Kind::kUnroll ? 1 : 2, row.kind);
  }
  return splits;
}

class Drawer {
 public:
  Drawer(MoveSpace& space, std::mt19937_64& rng, RandomMoveCounts* counts)
      : space_(space), rng_(rng), counts_(*counts), kernel_(space.Begin()) {}

  absl::StatusOr<MoveList> Run() {
    const bool workgroups = space_.target().has(ParallelLevel::kGroups);
    if (workgroups && Below(3) == 0) TG_RETURN_IF_ERROR(Draw(kJoins, 1 + Below(6)));
    if (workgroups && Below(4) == 0) {
      for (const Move& move : PickJoins(kernel_.root, space_.target())) {
        TG_RETURN_IF_ERROR(Add(move));
      }
    }
    const size_t joined = list_.size();
    if (workgroups && Below(2) == 0) TG_RETURN_IF_ERROR(Staged());
    if (list_.size() == joined) {
      if (!workgroups) {
        if (Below(3) == 0) TG_RETURN_IF_ERROR(Draw(kPeels, 2));
        if (kernel_.peeled) TG_RETURN_IF_ERROR(Add({}));
      }
      TG_RETURN_IF_ERROR(Draw(all_, Below(3)));
      if (kernel_.peeled) TG_RETURN_IF_ERROR(Add({}));
      TG_RETURN_IF_ERROR(Draw(splits_, Below(6)));
      if (workgroups) {
        TG_RETURN_IF_ERROR(Draw(kShares, Below(8)));
        TG_RETURN_IF_ERROR(Draw(splits_, Below(3)));
      } else {
        TG_RETURN_IF_ERROR(Draw(kThreads, Below(5)));
        TG_RETURN_IF_ERROR(Draw(kOrders, Below(6)));
      }
    }
    ++counts_.lists;
    counts_.moves += std::ssize(list_);
    return list_;
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }

  // Keeps the move if the kernel can have it.
  absl::Status Add(const Move& move) {
    auto next = space_.Add(kernel_, move);
    if (next.ok()) {
      kernel_ = *std::move(next);
      list_.push_back(move);
      return absl::OkStatus();
    }
    ++counts_.refused;
    // Nothing else than a refusal may come of a move.
    return absl::IsFailedPrecondition(next.status()) ? absl::OkStatus() : next.status();
  }

  absl::Status Draw(std::span<const Kind> kinds, int64_t tries) {
    for (; tries > 0; --tries) {
      Move move{.kind = kinds[static_cast<size_t>(Below(std::ssize(kinds)))]};
      const MoveRow& row = RowOf(move.kind);
      if (row.range) {
        const std::optional<KernelShape> shape = ReadShape(kernel_.root, space_.target());
        if (!shape || shape->d.ranges.empty()) return absl::OkStatus();
        const auto r = static_cast<size_t>(Below(std::ssize(shape->d.ranges)));
        move.range = shape->d.ranges[r].range_id();
        if (row.amount) move.amount = Amount(move.kind, shape->size[r]);
      }
      if (row.inner) {
        const std::optional<KernelShape> shape = ReadShape(kernel_.root, space_.target());
        const auto& ranges = shape->d.ranges;
        move.inner = ranges[static_cast<size_t>(Below(std::ssize(ranges)))].range_id();
      }
      if (row.axis) move.axis = static_cast<int>(Below(kMaxThreadAxes));
      TG_RETURN_IF_ERROR(Add(move));
    }
    return absl::OkStatus();
  }

  int64_t Amount(Kind kind, int64_t size) {
    constexpr int64_t kSome[] = {2, 3, 4, 5, 7, 8, 16, 32};
    if (kind == Kind::kVectorize) return int64_t{2} << Below(4);
    if (Below(2) == 0) {  // a divisor
      for (int i = 0; i < 8; ++i) {
        const int64_t n = 1 + Below(std::max<int64_t>(size, 1));
        if (size % n == 0 && n > 1) return n;
      }
    }
    return Below(8) == 0 ? std::max<int64_t>(1, size - 1 + Below(3)) : kSome[Below(8)];
  }

  absl::Status Staged() {
    const std::optional<KernelShape> shape = ReadShape(kernel_.root, space_.target());
    const std::optional<Matmul> p = shape ? FindMatmul(*shape) : std::nullopt;
    if (!p || !space_.target().stages) return absl::OkStatus();
    const int64_t m = p->m.range_id(), n = p->n.range_id(), k = p->k.range_id();
    const auto some = [&] { return int64_t{1} << Below(4); };
    const auto split = [&](Kind kind, int64_t range, int64_t amount, int axis = 0) -> absl::Status {
      return amount > 1 ? Add({kind, range, amount, axis}) : absl::OkStatus();
    };
    constexpr int64_t kNarrow = 8;  // columns, of units that have several
    const MatrixUnit unit = space_.target().matrix;
    std::optional<MmaKind> mma = MmaFor(unit, p->a.dtype());
    if (const auto narrow = MmaFor(unit, p->a.dtype(), kNarrow); narrow && Below(2) == 0) {
      mma = narrow;
    }
    int64_t folded = 1;
    if (mma && space_.target().warp > 1 && Below(4) != 0) {
      const MmaInfo& info = AllMmas()[static_cast<size_t>(*mma)];
      const int64_t steps = int64_t{1} << Below(3);
      TG_RETURN_IF_ERROR(split(Kind::kLocal, m, int64_t{1} << Below(3), 1));
      TG_RETURN_IF_ERROR(split(Kind::kUpcast, m, int64_t{1} << Below(2)));
      TG_RETURN_IF_ERROR(Add({Kind::kTensorcore, m, info.m, 0}));
      TG_RETURN_IF_ERROR(split(Kind::kLocal, n, int64_t{1} << Below(2), 0));
      TG_RETURN_IF_ERROR(split(Kind::kUpcast, n, some()));
      TG_RETURN_IF_ERROR(Add({Kind::kTensorcore, n, info.n, 0}));
      TG_RETURN_IF_ERROR(split(Kind::kUnroll, k, steps));
      TG_RETURN_IF_ERROR(Add({Kind::kTensorcore, k, info.k, 0}));
      folded = steps * info.k;
    } else {
      folded = some();
      TG_RETURN_IF_ERROR(split(Kind::kLocal, m, some(), 1));
      TG_RETURN_IF_ERROR(split(Kind::kUpcast, m, 1 + Below(6)));
      TG_RETURN_IF_ERROR(split(Kind::kUpcast, n, 1 + Below(4)));
      TG_RETURN_IF_ERROR(split(Kind::kLocal, n, some(), 0));
      TG_RETURN_IF_ERROR(split(Kind::kVectorize, n, int64_t{1} << Below(3)));
      TG_RETURN_IF_ERROR(split(Kind::kUnroll, k, folded));
    }
    const int64_t most = space_.target().async_bytes > 0 ? 5 : 2;
    const int64_t ring = Below(2) == 0 ? 1 : 2 + Below(most - 1);
    TG_RETURN_IF_ERROR(Add({.kind = Kind::kStage, .range = k, .amount = folded, .ring = ring}));
    for (size_t i = 0; i < shape->d.ranges.size(); ++i) {
      if (!Has(shape->parallel, static_cast<int>(i))) continue;
      TG_RETURN_IF_ERROR(Add({Kind::kGroup, shape->d.ranges[i].range_id(), 0, 0}));
    }
    return absl::OkStatus();
  }

  const std::vector<Kind> all_ = All(), splits_ = Splits();
  MoveSpace& space_;
  std::mt19937_64& rng_;
  RandomMoveCounts& counts_;
  MovedKernel kernel_;
  MoveList list_;
};

}  // namespace

absl::StatusOr<MoveList> RandomMoves(MoveSpace& space, std::mt19937_64& rng,
                                     RandomMoveCounts* counts) {
  return Drawer(space, rng, counts).Run();
}

}  // namespace telegrad::testing
