// The heuristic. It predicts cycles (tile_cost.h) for every choice among a few hundred and takes
// the least:
//
//   lanes     the range that becomes vectors: one for each work, its own if it reduces
//   tile      other ranges that some load does not depend on: upcasting them reuses that load from
//             registers (the register tile of a matrix product). It is chosen for the heaviest work
//   chains    a reduction with fewer accumulators than an addition takes cycles waits for its
//             additions: some of its iterations get separate accumulators
//   peel      the remainder that lanes and chains leave of a reduction becomes a separate
//             reduction; if the last vector of a loop would have many unused lanes, the remainder
//             of the loop becomes a separate nest; a reduction over several buffers one behind
//             the other becomes one for each
//   unroll    short innermost reduced ranges, such as a convolution's window
//
// Then it orders the loops and picks the one that is shared by the threads: see loop_order.h.
#include "engine/lowering/heuristic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "engine/lowering/block_choice.h"
#include "engine/lowering/copied_operations.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/loop_order.h"
#include "engine/lowering/moves/padding.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/parts.h"
#include "engine/lowering/shared_loops.h"
#include "engine/lowering/stage.h"
#include "engine/lowering/tile_cost.h"
#include "engine/lowering/tile_search.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

constexpr int64_t kMinCopies = 4;   // of a tile that is worth a peel
constexpr double kMinOutside = 64;  // iterations around it, for each thread

// Tiles that are tried for a shared loop that does not divide evenly, and how much less one has to
// take.
constexpr int kMostShares = 4;
constexpr double kWorthAnotherTile = 0.98;

class CpuHeuristic {
 public:
  // `peels`: find what is to be peeled, else all other moves. `rank`: which tile the heaviest work
  // gets; 0 is the best one. It does not get one with an `avoided` amount of a range.
  CpuHeuristic(KernelShape shape, const Target& target, bool peels, size_t rank = 0,
               std::span<const Tile::Part> avoided = {})
      : s_(std::move(shape)),
        target_(target),
        costs_(CostsOf(target).thread),
        peels_(peels),
        rank_(rank),
        avoided_(avoided),
        room_(kMaxRanges - static_cast<int>(s_.size.size())),
        cost_(s_, target_),
        tiles_(s_, target_, cost_, peels) {}
  CpuHeuristic(const CpuHeuristic&) = delete;
  CpuHeuristic& operator=(const CpuHeuristic&) = delete;

  MoveList Run() {
    std::vector<size_t> order(s_.works.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, std::greater<>{},
                             [&](size_t i) { return Weight(s_.works[i]); });
    for (size_t i : order) {
      const Work& work = s_.works[i];
      const bool first = i == order[0], small = s_.nodes <= kMaxTiledNodes;
      if (first && small) heaviest_ = static_cast<int>(i);
      // A sum of products in a nest of its own has a tile of its own.
      const bool apart = work.is_reduce() && (work.all & taken_ & ~s_.whole) == 0;
      if (small) PeelParts(work);
      const Tile tile = Best(work, (first || apart) && small, first ? rank_ : 0);
      if (first) predicted_ = cost_.Cycles(work, tile);
      Apply(work, tile, first, first || apart);
      taken_ |= work.all;
    }
    for (const Work& work : s_.works) {
      if (work.is_reduce()) Chains(work);
    }
    if (peels_) return std::move(moves_);
    for (const Work& work : s_.works) {
      if (work.is_reduce()) Unroll(work);
    }
    for (size_t r = 0; r < s_.size.size(); ++r) {
      if (lanes_[r] > 1)
        moves_.push_back({Move::Kind::kVectorize, s_.d.ranges[r].range_id(), lanes_[r]});
    }
    Order();
    return std::move(moves_);
  }

  // Of the heaviest work, after Run.
  double predicted() const { return predicted_; }
  // After Run: how many times as long the thread with most iterations of the shared loop takes as
  // the mean one, and what the tile has of that loop's range.
  double imbalance() const { return imbalance_; }
  Tile::Part shared() const { return shared_; }
  bool exhausted() const { return exhausted_; }

  // Cycles of all works with a list of moves.
  double Predict(const MoveList& moves) const {
    double cycles = 0;
    for (const Work& work : s_.works) {
      Tile tile;
      size_t parts = 0;
      for (const Move& m : moves) {
        const auto at = std::ranges::find_if(
            s_.d.ranges, [&](UOp range) { return range.range_id() == m.range; });
        const auto r = static_cast<int>(at - s_.d.ranges.begin());
        if (at == s_.d.ranges.end() || !Has(work.all, r)) continue;
        const MovePart part = RowOf(m.kind).part;
        if (part == MovePart::kLanes) {
          tile.lanes = r;
          tile.width = m.amount;
        } else if (part == MovePart::kReplicas && parts < std::size(tile.parts)) {
          tile.parts[parts++] = {r, m.amount};
        }
      }
      cycles += cost_.Cycles(work, tile);
    }
    return cycles;
  }

 private:
  double Weight(const Work& work) const {
    double cost = 0;
    for (const Work::Operation& o : work.operations)
      cost += o.cost / cost_.Repeats(work, o.ranges, {});
    return s_.Iterations(work.all) * (cost + static_cast<double>(work.accesses.size())) *
           (work.is_reduce() ? 1 : 0.5);
  }

  Tile Best(const Work& work, bool tiled, size_t rank) {
    const TileSearch::Lanes lanes{vectors_, lanes_};
    const std::optional<Tile> tile = tiles_.Best(
        work, lanes, tiled, rank,
        rank == 0 && heaviest_ >= 0 && &work == &s_.works[heaviest_] ? avoided_ : Avoided{});
    exhausted_ |= !tile;
    return tile ? *tile : *tiles_.Best(work, lanes, tiled, 0);
  }

  void Apply(const Work& work, const Tile& tile, bool first, bool tiled) {
    if (tile.lanes >= 0 && tile.width > 1 && !Has(vectors_, tile.lanes) && room_ > 0) {
      --room_;
      vectors_ |= Bit(tile.lanes);
      lanes_[tile.lanes] = tile.width;
      if (Has(work.own, tile.lanes)) {
        Peel(tile.lanes, tile.width);
      } else if (first && work.is_reduce() && PaysToPeel(work, tile)) {
        Peel(tile.lanes, tile.width);
      }
    }
    if (!tiled) return;
    for (const Tile::Part& p : tile.parts) {
      if (p.range >= 0) Upcast(p.range, p.amount);
    }
  }

  void Upcast(int range, int64_t amount, Move::Kind kind = Move::Kind::kUpcast) {
    if (amount < 2 || room_ <= 0) return;
    --room_;
    upcast_[range] *= amount;
    if (!peels_) moves_.push_back({kind, s_.d.ranges[range].range_id(), amount});
  }

  void Peel(int range, int64_t step) {
    const int64_t rest = s_.size[range] % step;
    if (!peels_ || rest == 0 || s_.size[range] < step || Has(peeled_, range)) return;
    if (KeptInOrder(Bit(range))) return;
    if (room_ <= 0) return;
    --room_;
    peeled_ |= Bit(range);
    moves_.push_back({Move::Kind::kPeel, s_.d.ranges[range].range_id(), s_.size[range] - rest});
  }

  // Each part of a reduction over several buffers is a reduction of its own: see parts.h.
  void PeelParts(const Work& work) {
    const std::optional<ReducedPart> part = peels_ ? FindPart(s_, work) : std::nullopt;
    if (!part || KeptInOrder(Bit(part->range)) || Has(peeled_, part->range) ||
        room_ < std::popcount(work.own))
      return;
    room_ -= std::popcount(work.own);
    peeled_ |= Bit(part->range);
    moves_.push_back({Move::Kind::kPeel, s_.d.ranges[part->range].range_id(), part->size});
  }

  // Whether narrower vectors for the rest of a loop save many lanes of a register tile, and the
  // loops that are left around both parts still are enough for the threads. These are then around
  // the lanes, too: what a tile walks along is read in each of their iterations, without a copy.
  bool PaysToPeel(const Work& work, const Tile& tile) const {
    const int64_t size = s_.size[tile.lanes], whole = size / tile.width * tile.width;
    const auto rest = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size - whole)));
    if (s_.once || s_.outer.empty() || s_.outer.back() != tile.lanes || whole == 0) {
      return false;
    }
    for (const MemoryAccess& a : work.accesses) {
      if (!Has(a.ranges, tile.lanes)) continue;
      // A row that begins anywhere lies in one line more.
      const auto row = static_cast<double>(tile.Of(tile.lanes) * a.bytes) + costs_.line_bytes;
      if (s_.Iterations(a.ranges & work.own) * row > costs_.first_level_bytes) return false;
    }
    if (3 * (kMaxRanges - room_) > kMaxRanges) return false;  // both parts have their own ranges
    if ((whole + tile.width) * 20 < (whole + rest) * 21) return false;
    if (tile.Copies(~Bit(tile.lanes)) < kMinCopies) return false;
    double iterations = 1;
    for (int r : s_.outer) iterations *= r == tile.lanes ? 1 : static_cast<double>(s_.size[r]);
    return iterations >= kMinOutside * target_.threads;
  }

  bool KeptInOrder(RangeSet ranges) const {
    return KeepsOrder(target_) && (ranges & s_.summed) != 0;
  }

  int64_t Left(int range) const { return s_.size[range] / (lanes_[range] * upcast_[range]); }

  // Accumulators for a reduction that has few.
  void Chains(const Work& work) {
    if (KeptInOrder(work.own)) return;
    int64_t chains = 1;
    for (RangeSet set = work.all; set != 0; set &= set - 1)
      chains *= upcast_[std::countr_zero(set)];
    int range = -1;
    for (RangeSet set = work.own & ~s_.whole; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (range < 0 || lanes_[r] > 1 || (lanes_[range] == 1 && Left(r) > Left(range))) range = r;
    }
    if (range < 0 || static_cast<int64_t>(work.operations.size()) > costs_.replicated ||
        Left(range) < 4)
      return;
    // An iteration of many operations gives the last addition time to end.
    double cost = 0;
    for (const Work::Operation& o : work.operations) cost += o.cost;
    chains = static_cast<int64_t>(static_cast<double>(chains) * std::max(1.0, cost));
    int64_t most = 1;
    while (2 * most * chains <= costs_.chains && 2 * most <= Left(range) / 2) most *= 2;
    if (most < 2) return;
    const int64_t step = lanes_[range] * upcast_[range];
    if (peels_ && s_.size[range] >= 4 * step * most) Peel(range, step * most);
    while (most > 1 && s_.size[range] % (step * most) != 0) most /= 2;
    Upcast(range, most);
  }

  void Unroll(const Work& work) {
    for (int i = work.root.num_src() - 1; i > 0; --i) {
      const int r = s_.d.IndexOf(work.root.src(i));
      const int64_t left = Left(r);
      if (left < 2) continue;
      if (Has(s_.whole, r)) return;
      const bool masks = std::ranges::any_of(work.accesses, [&](const MemoryAccess& a) {
        return Has(a.gate, r) && (a.gate & vectors_) != 0;
      });
      // Tests that no lanes have are branches: more of them at a time only keep more values live.
      const bool tests = std::ranges::any_of(work.accesses, [&](const MemoryAccess& a) {
        return Has(a.gate, r) && ((a.gate | a.ranges) & vectors_) == 0 && !Overlaps(a, r);
      });
      if (tests || left > 8) return;
      std::vector<int64_t> copies = upcast_;
      copies[static_cast<size_t>(r)] *= left;
      if (CopiedOperations(work, copies, lanes_) >
          (masks ? costs_.unrolled_masks : costs_.unrolled))
        return;
      Upcast(r, left, Move::Kind::kUnroll);
    }
  }

  // Whether iterations of `r` read again what the copies of a tile read, as those of a window do.
  bool Overlaps(const MemoryAccess& a, int r) const {
    for (RangeSet set = a.ranges & s_.loops; set != 0; set &= set - 1) {
      const int tiled = std::countr_zero(set);
      const int64_t step = a.stride[tiled], window = a.stride[r];
      if (step == 0 || step == kIrregular || window == kIrregular) continue;
      if (window % step == 0 && std::abs(window / step) < upcast_[tiled]) return true;
    }
    return false;
  }

  void Order() {
    std::vector<int64_t> tile(s_.size.size());
    for (size_t r = 0; r < tile.size(); ++r) tile[r] = lanes_[r] * upcast_[r];
    const LoopOrder order = OrderLoops(s_, tile, target_, vectors_, heaviest_);
    if (order.thread >= 0) {
      moves_.push_back({Move::Kind::kThread, s_.d.ranges[order.thread].range_id(), 0});
    }
    BlockChoice blocks;
    if (heaviest_ >= 0 && room_ >= kBlockRanges && !KeptInOrder(s_.works[heaviest_].own)) {
      blocks = ChooseBlocks(s_, s_.works[heaviest_], order, upcast_, lanes_, vectors_, target_);
      if (blocks.upcast > 0) Narrow(order.loops.back(), blocks.upcast, &tile);
    }
    const int64_t parts = PartsOfUnits(order, blocks, tile);
    if (order.thread >= 0) Share(order, parts, tile);
    for (size_t i = 0; i < order.loops.size(); ++i) {
      const int64_t part = i == 1 && parts > 0 ? parts : i == blocks.outside ? blocks.parts : 0;
      if (part > 0)
        moves_.push_back({Move::Kind::kBlock, s_.d.ranges[order.loops[i]].range_id(), part});
      if (i == blocks.outside) {
        moves_.push_back(
            {Move::Kind::kBlock, s_.d.ranges[blocks.folded].range_id(), blocks.amount});
      }
      moves_.push_back({Move::Kind::kOuter, s_.d.ranges[order.loops[i]].range_id(), 0});
    }
  }

  // Has at most as many vectors of `range` computed together as there were.
  void Narrow(int range, int64_t upcast, std::vector<int64_t>* tile) {
    const int64_t id = s_.d.ranges[range].range_id();
    int64_t left = upcast;  // the first of its moves does it all
    for (Move& move : moves_) {
      if (move.kind == Move::Kind::kUpcast && move.range == id) {
        move.amount = left;
        left = 1;
      }
    }
    std::erase_if(moves_, [](const Move& move) {
      return move.kind == Move::Kind::kUpcast && move.amount == 1;
    });
    upcast_[range] = upcast;
    (*tile)[static_cast<size_t>(range)] = upcast * lanes_[range];
  }

  void Share(const LoopOrder& order, int64_t parts, const std::vector<int64_t>& tile) {
    const auto trips = [&](int r) {
      const int64_t step = tile[static_cast<size_t>(r)];
      return (s_.size[r] + step - 1) / step;
    };
    int64_t units = trips(order.thread);
    if (parts > 0) units *= (trips(order.loops[1]) + parts - 1) / parts;
    // As many threads as it is worth waking: see devices/cpu/launch_cost.h.
    const auto busy = static_cast<int64_t>(std::min(predicted_ / costs_.wake, 1e6));
    const int64_t threads = std::clamp<int64_t>(busy, 1, target_.threads);
    const int64_t most = (units + threads - 1) / threads;
    shared_ = {order.thread, tile[static_cast<size_t>(order.thread)]};
    imbalance_ = static_cast<double>(most * threads) / static_cast<double>(units);
  }

  // How many iterations of the loop directly inside of the shared one are a unit of a launch, where
  // all of them would take long; else 0. See shared_loops.h.
  int64_t PartsOfUnits(const LoopOrder& order, const BlockChoice& blocks,
                       const std::vector<int64_t>& tile) const {
    if (order.thread < 0 || order.loops.size() < 2 || s_.whole != 0 || room_ < 2) return 0;
    const auto at = [&](int r) { return tile[static_cast<size_t>(r)]; };
    const auto trips = [&](int r) { return (s_.size[r] + at(r) - 1) / at(r); };
    // Blocks inside of another loop leave that one whole.
    const int loop = order.loops[1];
    if (!Has(s_.parallel, loop) || (blocks.folded >= 0 && blocks.outside != 1)) return 0;
    double cycles = 0;
    for (const Work& work : s_.works) {
      double lanes = 1;
      for (RangeSet set = work.all; set != 0; set &= set - 1) {
        lanes *= static_cast<double>(lanes_[std::countr_zero(set)]);
      }
      cycles += CyclesOf(s_, work, target_) / lanes;
    }
    const double units = std::ceil(cycles / static_cast<double>(trips(order.thread)) /
                                   static_cast<double>(target_.unit_cycles));
    if (units < 2) return 0;
    const auto least = static_cast<double>((costs_.copied_rows + at(loop) - 1) / at(loop));
    double part = std::max(least, std::ceil(static_cast<double>(trips(loop)) / units));
    if (blocks.parts > 0) part = std::min(part, static_cast<double>(blocks.parts));
    // Of about the same size. A part moved back computes again what it has in common with another.
    const auto all = static_cast<double>(trips(loop));
    auto even = static_cast<int64_t>(std::ceil(all / std::ceil(all / part)));
    while (even > 0 && !tiles_.Fits(loop, even * at(loop))) --even;
    return even > 0 && even < trips(loop) ? even : 0;
  }

  using Avoided = std::span<const Tile::Part>;

  const KernelShape s_;
  const Target& target_;
  const ThreadCosts& costs_;
  const bool peels_;
  const size_t rank_;
  const Avoided avoided_;
  double imbalance_ = 1;
  Tile::Part shared_;
  double predicted_ = 0;    // cycles of the heaviest work
  bool exhausted_ = false;  // there are not so many tiles
  int heaviest_ = -1;       // the work that is tiled
  int room_;                // for ranges, of which splits and peels make more
  const TileCost cost_;
  const TileSearch tiles_;
  RangeSet vectors_ = 0, peeled_ = 0;
  RangeSet taken_ = 0;  // of the works that have been looked at
  std::vector<int64_t> lanes_ = std::vector<int64_t>(kMaxRanges, 1);
  std::vector<int64_t> upcast_ = std::vector<int64_t>(kMaxRanges, 1);
  MoveList moves_;
};

// nullopt where nothing is around the stores: there is nothing to order or to share.
std::optional<KernelShape> ReadLoops(UOp sink, const Target& target,
                                     std::span<const Program::Argument> arguments) {
  return sink.src(0).is(Op::kEnd) ? ReadShape(sink, target, arguments) : std::nullopt;
}

}  // namespace

MoveList PickPeels(UOp sink, std::span<const Program::Argument> arguments, const Target& target) {
  if (PaddingOf(target).gates_reductions) return {};  // no remainder is left
  std::optional<KernelShape> shape = ReadLoops(sink, target, arguments);
  if (!shape) return {};
  return CpuHeuristic(*std::move(shape), target, /*peels=*/true).Run();
}

namespace {

std::vector<RankedMoves> RankForWorkers(UOp sink, std::span<const Program::Argument> arguments,
                                        const Target& target, size_t most) {
  std::vector<RankedMoves> out;
  const std::optional<KernelShape> shape = ReadLoops(sink, target, arguments);
  if (!shape) return {{}};
  for (size_t rank = 0; rank < most; ++rank) {
    CpuHeuristic heuristic(*shape, target, /*peels=*/false, rank);
    MoveList moves = heuristic.Run();
    if (heuristic.exhausted()) break;
    out.push_back({std::move(moves), heuristic.predicted()});
  }
  return out;
}

double PredictForWorkers(UOp sink, std::span<const Program::Argument> arguments,
                         const Target& target, const MoveList& moves) {
  const std::optional<KernelShape> shape = ReadLoops(sink, target, arguments);
  return shape ? CpuHeuristic(*shape, target, /*peels=*/false).Predict(moves) : 0;
}

// A tile that is a little slower may divide the shared loop among the threads more evenly: 11
// iterations take two threads as long as 12.
MoveList PickForWorkers(UOp sink, std::span<const Program::Argument> arguments,
                        const Target& target) {
  std::optional<KernelShape> shape = ReadLoops(sink, target, arguments);
  if (!shape) return {};
  std::vector<Tile::Part> avoided;
  MoveList best;
  double least = 0;
  for (int tries = 0; tries < kMostShares; ++tries) {
    CpuHeuristic heuristic(*shape, target, /*peels=*/false, 0, avoided);
    MoveList moves = heuristic.Run();
    const double cycles = heuristic.predicted() * heuristic.imbalance();
    if (tries == 0 || cycles < kWorthAnotherTile * least) {
      least = cycles;
      best = std::move(moves);
    }
    const Tile::Part shared = heuristic.shared();
    // No other tile gains more than what is uneven now.
    if (heuristic.imbalance() * kWorthAnotherTile < 1) break;
    if (shared.range < 0 || shared.amount == 1) break;
    avoided.push_back(shared);
  }
  return best;
}

// One for each level at which iterations are first divided.
struct Picker {
  ParallelLevel level;
  MoveList (*pick)(UOp sink, std::span<const Program::Argument> arguments, const Target& target);
  std::vector<RankedMoves> (*rank)(UOp sink, std::span<const Program::Argument> arguments,
                                   const Target& target, size_t most);
  double (*predict)(UOp sink, std::span<const Program::Argument> arguments, const Target& target,
                    const MoveList& moves);
};
constexpr Picker kPickers[] = {
    {ParallelLevel::kWorkers, PickForWorkers, RankForWorkers, PredictForWorkers},
    {ParallelLevel::kGroups,
     [](UOp sink, auto arguments, const Target& target) {
       return RankForGroups(sink, arguments, target, 1).front().moves;
     },
     RankForGroups, PredictForGroups},
};

// Null: the target divides nothing.
const Picker* PickerFor(const Target& target) {
  const auto* const found = std::ranges::find_if(
      kPickers, [&](const Picker& picker) { return target.has(picker.level); });
  return found == std::end(kPickers) ? nullptr : found;
}

}  // namespace

std::vector<RankedMoves> RankMoves(UOp sink, std::span<const Program::Argument> arguments,
                                   const Target& target, size_t most) {
  const Picker* const picker = PickerFor(target);
  return picker != nullptr ? picker->rank(sink, arguments, target, most)
                           : std::vector<RankedMoves>{{}};
}

double PredictCycles(UOp sink, std::span<const Program::Argument> arguments, const Target& target,
                     const MoveList& moves) {
  const Picker* const picker = PickerFor(target);
  return picker != nullptr ? picker->predict(sink, arguments, target, moves) : 0;
}

MoveList PickMoves(UOp sink, std::span<const Program::Argument> arguments, const Target& target) {
  const Picker* const picker = PickerFor(target);
  return picker != nullptr ? picker->pick(sink, arguments, target) : MoveList();
}

}  // namespace telegrad
