// Moves for a target with workgroups. What counts there: many threads, and that neighbouring
// threads touch neighbouring elements. A kernel is shared in one of these ways:
//
//   product    The workgroups of a matrix product compute tiles, with matrix instructions where
//              the target has some for the operands' type, else each thread a tile in registers.
//              The largest tile is taken that leaves no processor without a workgroup.
//
//   elements   Every iteration of the parallel ranges is a thread's. The range whose elements are
//              neighbours in memory gets the workgroup's threads, and what it does not use goes to
//              the next ranges outwards. A thread takes as many neighbouring elements as its widest
//              access has, if all that walk the range are aligned for that.
//   rows       The parallel ranges that every reduction depends on are workgroups, whose threads
//              share each reduction and each loop inside: sums of rows, softmax, and one large sum.
//              Short rows get less than a workgroup's threads, and a workgroup has several of them.
//   columns    Like rows, but what is reduced lies apart in memory: neighbouring threads take
//              neighbouring columns, and threads on a second axis share the reductions.
#include <algorithm>
#include <bit>
#include <span>

#include "engine/ir/product_tile.h"
#include "engine/lowering/choose/group_cost.h"
#include "engine/lowering/heuristic.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/panel_order.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/staging.h"
#include "engine/lowering/workgroup_matmul.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

constexpr int kMaxOtherRanges = 4;  // that a move makes

// Of a product of one thread that shares nothing: rows, and columns in vectors.
struct ThreadTile {
  int64_t rows = 0, vectors = 0;
};

// As many vectors as begin in a cycle, if there are so many, and then as many rows as the registers
// hold, beside a vector of each of its columns and one of a row. No rows: fewer than two fit.
ThreadTile ThreadTileFor(int64_t rows, int64_t vectors, const Target& target) {
  for (int64_t n = std::min<int64_t>(target.vector_rate, vectors); n > 0; n /= 2) {
    int64_t m = 1;
    while (2 * m <= rows && 2 * m * n + n + 1 <= target.vector_registers) m *= 2;
    if (m > 1) return {m, n};
  }
  return {};
}

// In which way a kernel is shared; kRules: by the rules at the head of this file.
enum class Form : uint8_t { kRules, kProduct, kElements, kRows };

class WorkgroupHeuristic {
 public:
  // `rank`: which tile a product gets; 0 is the one of the least cost.
  WorkgroupHeuristic(KernelShape shape, const Target& target, Form form, size_t rank)
      : s_(std::move(shape)),
        target_(target),
        form_(form),
        rank_(rank),
        costs_(CostsOf(target).group),
        step_(target.warp > 1 ? target.warp : costs_.step),
        room_(kMaxRanges - static_cast<int>(s_.size.size())),
        lanes_(s_.size.size(), 1) {}

  // Empty where the kernel cannot be shared in that form, or there are not so many tiles.
  MoveList Run() {
    for (int r : s_.outer) {
      if (Has(s_.parallel, r) && s_.size[r] > 1) parallel_.push_back(r);
    }
    if (form_ != Form::kRules && (s_.threads || Keeps())) return {};
    if (s_.threads) {
      for (int r : s_.outer) Add(Move::Kind::kGroup, r, 0);
      return std::move(moves_);
    }
    if (Keeps()) {  // what a thread of its own does, by itself
      for (size_t i = 0; i < std::min<size_t>(s_.outer.size(), kMaxThreadAxes); ++i) {
        Add(Move::Kind::kGroup, s_.outer[i], 0);
      }
      return std::move(moves_);
    }
    if (form_ == Form::kRules || form_ == Form::kProduct) {
      if (Product() || form_ == Form::kProduct) return std::move(moves_);
    }
    rows_ = s_.parallel;
    double longest = 1;
    for (const Work& work : s_.works) {
      if (IsLong(work)) rows_ &= work.all & ~work.own;
    }
    for (const Work& work : s_.works) {
      longest = std::max(longest, s_.Iterations(work.all & ~rows_));
    }
    fastest_ = Fastest();
    const bool rows = longest >= costs_.alone && !s_.in_place;
    if (form_ == Form::kRows && !rows) return {};
    const bool shared = rows_ != s_.parallel || Iterations() < Wanted() || RowsAreNeighbours();
    if (form_ == Form::kRows || (form_ == Form::kRules && rows && shared)) {
      Rows();
    } else {
      Elements();
    }
    return std::move(moves_);
  }

 private:
  // Whether nests pass values to each other in private memory.
  bool Keeps() const {
    return std::ranges::any_of(s_.works, [](const Work& work) {
      return work.root.is(Op::kStore) && Memory(work.root.src(0)).is(Op::kBuffer);
    });
  }

  bool IsLong(const Work& work) const {
    return work.is_reduce() && s_.Iterations(work.own) >= costs_.alone;
  }
  double Iterations() const { return s_.Iterations(rows_); }
  // Threads that keep all processors busy.
  double Wanted() const { return static_cast<double>(costs_.threads) * target_.threads; }

  // Bytes that are neighbours along a range, of the works in `all`.
  double Neighbours(int r, RangeSet all) const {
    double bytes = 0;
    for (const Work& work : s_.works) {
      if (!Has(work.all, r) || (work.all & all) == 0) continue;
      for (const MemoryAccess& a : work.accesses) {
        if (a.stride[r] == 1) bytes += s_.Iterations(work.all) * static_cast<double>(a.bytes);
      }
    }
    return bytes;
  }

  // The parallel range along which most bytes are neighbours; -1 if there is none.
  int Fastest() const {
    int best = parallel_.empty() ? -1 : parallel_.back();
    double most = 0;
    for (int r : parallel_) {
      const double bytes = Neighbours(r, ~RangeSet{0});
      if (bytes >= most) {
        most = bytes;
        best = r;
      }
    }
    return best;
  }

  // Whether more bytes are neighbours along what is reduced than along any parallel range. Windows
  // are too short to be rows.
  bool RowsAreNeighbours() const {
    double most = 0;
    for (size_t r = 0; r < s_.size.size(); ++r) {
      if (!Has(s_.parallel, static_cast<int>(r)) && s_.size[r] >= costs_.short_row) {
        most = std::max(most, Neighbours(static_cast<int>(r), ~RangeSet{0}));
      }
    }
    return fastest_ < 0 || most > Neighbours(fastest_, ~RangeSet{0});
  }

  // How many neighbouring elements of a range a thread may take: every access that walks it does so
  // element by element, from an aligned one on, and is not gated by it.
  int64_t AlignedLanes(int range) const {
    int64_t widest = 1;
    for (const Work& work : s_.works) {
      if (!Has(work.all, range)) continue;
      for (const MemoryAccess& a : work.accesses) {
        if (Has(a.gate, range)) return 1;
        widest = std::max(widest, a.bytes);
      }
    }
    const int64_t lanes = std::min<int64_t>(target_.vector_bytes / widest, target_.vector_lanes);
    if (lanes < 2 || s_.size[range] % lanes != 0) return 1;
    for (const Work& work : s_.works) {
      for (const MemoryAccess& a : work.accesses) {
        if (a.stride[range] == 0) continue;
        if (a.stride[range] != 1) return 1;
        for (size_t r = 0; r < s_.size.size(); ++r) {
          const bool other = static_cast<int>(r) != range && Has(a.ranges, static_cast<int>(r));
          if (other && (a.stride[r] == kIrregular || a.stride[r] % lanes != 0)) return 1;
        }
      }
    }
    return lanes;
  }

  int64_t Left(int r) const { return s_.size[r] / lanes_[r]; }

  void Add(Move::Kind kind, int range, int64_t amount, int axis = 0) {
    if (amount < 2 && kind != Move::Kind::kGroup) return;
    --room_;
    moves_.push_back({kind, s_.d.ranges[range].range_id(), amount, axis});
  }

  void Groups(RangeSet set) {
    for (int r : parallel_) {
      if (Has(set, r)) Add(Move::Kind::kGroup, r, 0);
    }
  }

  // Several accumulators for each long reduction that a thread does alone: its loads need not wait
  // for each other.
  void Accumulators(RangeSet shared) {
    RangeSet done = shared;
    for (const Work& work : s_.works) {
      if (!IsLong(work) || (work.own & done) != 0) continue;
      if (static_cast<int64_t>(work.operations.size()) > costs_.replicated ||
          room_ < kMaxOtherRanges)
        continue;
      int longest = std::countr_zero(work.own);
      for (RangeSet set = work.own; set != 0; set &= set - 1) {
        const int r = std::countr_zero(set);
        if (s_.size[r] > s_.size[longest]) longest = r;
      }
      done |= work.own;
      if (s_.size[longest] % costs_.accumulators == 0) {
        Add(Move::Kind::kUpcast, longest, costs_.accumulators);
      }
    }
  }

  // A tile of the product for each workgroup, which is one thread. Columns are the outer
  // workgroups: what is read of them stays in a cache while the rows go by.
  bool ThreadProduct(int m, int n) {
    const int64_t lanes = target_.vector_bytes / ByteSize(DType::kFloat32);
    const ThreadTile best = ThreadTileFor(s_.size[m], s_.size[n] / lanes, target_);
    if (best.rows == 0) return false;
    Groups(s_.parallel & ~(Bit(m) | Bit(n)));
    Add(Move::Kind::kUpcast, n, best.vectors);
    Add(Move::Kind::kVectorize, n, lanes);
    Groups(Bit(n));
    Add(Move::Kind::kUpcast, m, best.rows);
    Groups(Bit(m));
    return true;
  }

  bool Product() {
    constexpr int kProductRanges = 12;  // that its moves make
    const std::optional<Matmul> p = FindMatmul(s_);
    if (!p || room_ < kProductRanges) return false;
    const int m = s_.d.IndexOf(p->m), n = s_.d.IndexOf(p->n), k = s_.d.IndexOf(p->k);
    const bool narrow = p->a.dtype() != DType::kFloat32;
    if (!target_.stages) return rank_ == 0 && !narrow && ThreadProduct(m, n);
    const double products = s_.Iterations(s_.parallel & ~(Bit(m) | Bit(n)));
    const std::vector<ProductTile> tiles =
        RankTiles({s_.size[m], s_.size[n], s_.size[k], products, p->a.dtype()}, target_);
    if (rank_ >= tiles.size()) return false;
    const ProductTile* const tile = &tiles[rank_];
    Add(Move::Kind::kLocal, m, tile->threads_m, 1);
    if (narrow) {
      const MmaInfo& mma = AllMmas()[static_cast<size_t>(*MmaOfTile(*tile, p->a.dtype(), target_))];
      Add(Move::Kind::kUpcast, m, tile->m / mma.m);
      Add(Move::Kind::kTensorcore, m, mma.m);
      Add(Move::Kind::kLocal, n, tile->threads_n, 0);
      Add(Move::Kind::kUpcast, n, tile->n / mma.n);
      Add(Move::Kind::kTensorcore, n, mma.n);
      Add(Move::Kind::kUnroll, k, tile->k / mma.k);
      Add(Move::Kind::kTensorcore, k, mma.k);
    } else {
      const int64_t lanes = target_.vector_bytes / ByteSize(p->a.dtype());
      Add(Move::Kind::kUpcast, m, tile->m);
      Add(Move::Kind::kUpcast, n, tile->n / lanes);
      Add(Move::Kind::kLocal, n, tile->threads_n, 0);
      Add(Move::Kind::kVectorize, n, lanes);
      Add(Move::Kind::kUnroll, k, tile->k);
    }
    Add(Move::Kind::kStage, k, tile->k);
    moves_.back().ring = Ring(*p, *tile);
    Groups(s_.parallel);
    return true;
  }

  // How many tiles there are in local memory: several where all of both operands can be copied
  // asynchronously, or the next ones wait in registers.
  int64_t Ring(const Matmul& p, const ProductTile& tile) const {
    constexpr int64_t kLeastRing = kRingOfRegisters + 1;
    const int64_t size = ByteSize(p.a.dtype()), lanes = target_.async_bytes / size;
    const int k = s_.d.IndexOf(p.k);
    const int64_t tiles = (s_.size[k] + tile.k - 1) / tile.k;
    const int64_t bytes = size * PanelElements(tile.rows(), tile.columns(), tile.k, target_);
    const int64_t fit = target_.local_bytes / bytes;
    if (target_.async_bytes == 0) {
      constexpr int64_t kLeastTiles = 4;  // the last one is loaded twice
      return tiles >= kLeastTiles && fit >= costs_.register_ring ? costs_.register_ring : 1;
    }
    const int64_t ring = std::min({costs_.ring, tiles + 1, fit});
    const auto whole = [&](UOp load, UOp range, int64_t rows) {
      return lanes <= 1 || PieceOf(load, {range, rows}, {p.k, tile.k}, lanes) >= lanes;
    };
    if (!whole(p.a, p.m, tile.rows()) || !whole(p.b, p.n, tile.columns())) return 1;
    return ring >= kLeastRing ? ring : 1;
  }

  void Elements() {
    if (parallel_.empty()) return;
    const double all = s_.Iterations(s_.parallel);
    const int64_t lanes = AlignedLanes(fastest_);
    if (all >= static_cast<double>(lanes) * target_.threads * step_) {
      lanes_[fastest_] = lanes;
    }
    int64_t left = all < Wanted() * static_cast<double>(lanes_[fastest_]) ? costs_.few_threads
                                                                          : costs_.threads;
    std::vector<int> order{fastest_};
    for (size_t i = parallel_.size(); i-- > 0;) {
      if (parallel_[i] != fastest_) order.push_back(parallel_[i]);
    }
    int axis = 0;
    for (int r : order) {
      if (axis == kMaxThreadAxes || left < 2 || room_ < kMaxOtherRanges) break;
      const int64_t chunks = (Left(r) + left - 1) / left;
      int64_t amount = (Left(r) + chunks - 1) / chunks;
      if (chunks > 1 && amount >= step_) {
        amount = std::min(left, (amount + step_ - 1) / step_ * step_);
      }
      if (amount < 2) continue;
      Add(Move::Kind::kLocal, r, amount, axis++);
      left /= amount;
    }
    Add(Move::Kind::kVectorize, fastest_, lanes_[fastest_]);
    Accumulators(0);
    Groups(s_.parallel);
  }

  // What no REDUCE reduces and is not independent either: it runs in order.
  RangeSet InOrder() const {
    RangeSet set = (s_.size.size() < kMaxRanges ? Bit(static_cast<int>(s_.size.size())) : 0) - 1;
    for (const Work& work : s_.works) set &= ~work.own;
    return set & ~s_.loops;
  }

  // The ranges that the threads of a row share: for each work at most one, the longest and of these
  // the one along which most bytes are neighbours. Heavy works choose first.
  RangeSet PickShared() const {
    std::vector<size_t> order(s_.works.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, std::greater<>{}, [&](size_t i) {
      return s_.Iterations(s_.works[i].all & ~rows_) *
             static_cast<double>(1 + s_.works[i].accesses.size());
    });
    RangeSet shared = 0;
    for (size_t i : order) {
      const Work& work = s_.works[i];
      if ((work.all & shared) != 0) continue;
      int best = -1;
      double most = 1;
      for (RangeSet set = work.all & ~rows_ & ~InOrder(); set != 0; set &= set - 1) {
        const int r = std::countr_zero(set);
        const bool alone = std::ranges::all_of(
            s_.works, [&](const Work& w) { return !Has(w.all, r) || (w.all & shared) == 0; });
        if (!alone) continue;
        const double part = Neighbours(r, work.all) / (1 + s_.Iterations(work.all));
        const double score = static_cast<double>(std::min(s_.size[r], costs_.threads)) * (1 + part);
        if (score > most) {
          most = score;
          best = r;
        }
      }
      if (best >= 0) shared |= Bit(best);
    }
    return shared;
  }

  void Rows() {
    const RangeSet shared = PickShared();
    int64_t longest = 1;
    for (RangeSet set = shared; set != 0; set &= set - 1) {
      longest = std::max(longest, s_.size[std::countr_zero(set)]);
    }
    const bool columns = fastest_ >= 0 && Has(rows_, fastest_) && !RowsAreNeighbours();
    const bool many = Iterations() >= costs_.busy * target_.threads;
    const auto wanted = static_cast<int64_t>(std::bit_ceil(
        static_cast<uint64_t>(many ? (longest + costs_.elements - 1) / costs_.elements : longest)));
    const auto all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(longest)));
    const int64_t most = Iterations() < target_.threads ? target_.group_threads : costs_.threads;
    int64_t threads = std::clamp(wanted, std::min<int64_t>(all, step_), most);
    int beside = -1;  // the row range that has threads too
    int64_t rows = 1;
    if (columns) {
      beside = fastest_;
      rows = step_;
      threads = std::min(threads, most / rows);
    } else if (threads < costs_.few_threads) {
      for (int r : parallel_) beside = Has(rows_, r) ? r : beside;
      const auto size =
          beside < 0 ? 1
                     : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(s_.size[beside])));
      rows = std::min(costs_.few_threads / threads, size);
      if (rows * threads < step_) threads = step_ / rows;  // whole warps exchange
    }
    if (beside >= 0) Add(Move::Kind::kLocal, beside, rows, columns ? 0 : 1);
    for (RangeSet set = shared; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (room_ < kMaxOtherRanges) break;
      if (!columns && s_.size[r] >= 2 * threads) lanes_[r] = AlignedLanes(r);
      const int64_t steps = Left(r) / threads;
      const bool folded = s_.d.ranges[r].axis_type() == AxisType::kReduce;
      if (folded && lanes_[r] == 1 && steps % costs_.accumulators == 0 && Left(r) % threads == 0) {
        Add(Move::Kind::kUpcast, r, costs_.accumulators);
      }
      Add(Move::Kind::kLocal, r, threads, columns ? 1 : 0);
      Add(Move::Kind::kVectorize, r, lanes_[r]);
    }
    Accumulators(shared);
    Groups(rows_);
  }

  const KernelShape s_;
  const Target& target_;
  const Form form_;
  const size_t rank_;
  const GroupCosts& costs_;
  const int64_t step_;  // threads that are best kept together
  int room_;            // for ranges
  std::vector<int64_t> lanes_;
  std::vector<int> parallel_;  // outermost first
  RangeSet rows_ = 0;          // the parallel ranges that every long reduction depends on
  int fastest_ = -1;
  MoveList moves_;
};

}  // namespace

std::vector<RankedMoves> RankForGroups(UOp sink, std::span<const Program::Argument>,
                                       const Target& target, size_t most) {
  const std::optional<KernelShape> shape = ReadShape(sink, target);
  if (!shape) return {{}};
  std::vector<RankedMoves> out;
  // Whether the kernel can be shared so.
  const auto add = [&](Form form, size_t rank) {
    MoveList moves = WorkgroupHeuristic(*shape, target, form, rank).Run();
    if (form != Form::kRules && moves.empty()) return false;
    const double cost = CostOfGroups(*shape, target, moves);
    if (std::ranges::find(out, moves, &RankedMoves::moves) == out.end()) {
      out.push_back({std::move(moves), cost});
    }
    return true;
  };
  add(Form::kRules, 0);
  if (most == 1) return out;
  for (const Form form : {Form::kElements, Form::kRows}) add(form, 0);
  for (size_t rank = 0; add(Form::kProduct, rank); ++rank) {
  }
  std::stable_sort(out.begin() + 1, out.end(),
                   [](const RankedMoves& x, const RankedMoves& y) { return x.cycles < y.cycles; });
  if (out.size() > most) out.resize(most);
  return out;
}

double PredictForGroups(UOp sink, std::span<const Program::Argument>, const Target& target,
                        const MoveList& moves) {
  const std::optional<KernelShape> shape = ReadShape(sink, target);
  return shape ? CostOfGroups(*shape, target, moves) : 0;
}

}  // namespace telegrad
