// The heuristic. It looks at how each access steps over each range:
//
//   lanes     the range that most accesses walk with stride 1; a store must be contiguous in it
//   tile      for a folded value, other ranges that some load does not depend on: upcasting them
//   reuses
//             that load from registers (the register tile of a matrix product)
//   unroll    short innermost folded ranges, such as a convolution's window
//   thread    the outermost range with enough iterations to share
#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/lowering/affine.h"
#include "engine/lowering/moves.h"

namespace telegrad {
namespace {

constexpr size_t kMaxTiledNodes = 400;  // a larger kernel is not replicated
constexpr int64_t kMinLanes = 4;

struct Access {
  UOp address;
  bool store = false;
};

class Heuristic {
 public:
  Heuristic(UOp sink, const Target& target) : sink_(sink), target_(target) {}

  std::vector<Move> Run() {
    dependence_ = FindDependence(sink_);
    const UOp end = sink_.src(0);
    if (!dependence_ || !end.is(Op::kEnd)) return {};
    Collect();
    if (!simple_) return ThreadOnly();
    for (int i = 1; i < end.num_src(); ++i) {
      if (end.src(i).arg(1) == static_cast<int64_t>(AxisType::kLoop)) loops_.push_back(end.src(i));
    }
    PickLanes();
    if (reduce_.valid() && nodes_ <= kMaxTiledNodes) {
      PickTile();
      PickUnroll();
    }
    PickThread();
    return std::move(moves_);
  }

 private:
  static int64_t SizeOf(UOp range) { return range.src(0).const_word(); }

  // The outermost range that everything depends on.
  std::vector<Move> ThreadOnly() {
    const UOp range = sink_.src(0).src(1);
    if (range.arg(1) != static_cast<int64_t>(AxisType::kLoop)) return {};
    for (uint32_t id : PostOrder(sink_)) {
      const UOp u = sink_.graph()->at(id);
      if ((u.is(Op::kStore) || u.is(Op::kReduce)) && !dependence_->Depends(u, range)) return {};
    }
    return {{Move::Kind::kThread, range, 0}};
  }

  void Collect() {
    const Graph& graph = *sink_.graph();
    int reduces = 0, stores = 0;
    for (uint32_t id : PostOrder(sink_)) {
      const UOp u = graph.at(id);
      ++nodes_;
      if (u.is(Op::kLoad)) accesses_.push_back({u.src(0), false});
      if (u.is(Op::kStore)) accesses_.push_back({u.src(0), true});
      if (u.is(Op::kStore)) ++stores;
      if (u.is(Op::kReduce)) {
        ++reduces;
        reduce_ = u;
      }
      if (u.is(Op::kLoad) || u.is(Op::kStore)) {
        widest_ = std::max(widest_, ByteSize(u.src(0).dtype()));
      }
    }
    if (reduces > 1 || stores > 1 || sink_.src(0).src(0).is(Op::kEnd)) simple_ = false;
    if (reduces != 1) reduce_ = UOp();
    if (reduce_.valid()) {
      for (int i = 1; i < reduce_.num_src(); ++i) folded_.push_back(reduce_.src(i));
    }
  }

  // Higher is better; nullopt: this range cannot be the lanes.
  std::optional<double> LaneScore(UOp range, bool folded) const {
    double score = 0;
    for (const Access& a : accesses_) {
      const auto stride = StrideOf(a.address.src(1), range);
      if (a.store) {
        if (folded) continue;
        if (stride != 1) return std::nullopt;
        score += 4;
      } else if (stride == 1) {
        score += 3;
      } else if (stride != 0) {
        score -= 4;
      }
    }
    return score;
  }

  int64_t Lanes(UOp range, bool folded) const {
    const int64_t most = target_.vector_bytes / widest_, size = SizeOf(range);
    if (folded) {  // no remainder is possible
      int64_t lanes = most;
      while (lanes > 1 && size % lanes != 0) lanes /= 2;
      return lanes;
    }
    int64_t best = 1;
    double least = static_cast<double>(size);
    for (int64_t lanes = 2; lanes <= most; lanes *= 2) {
      const double steps = std::ceil(static_cast<double>(size) / static_cast<double>(lanes));
      if (steps < least) {
        least = steps;
        best = lanes;
      }
    }
    return best;
  }

  void PickLanes() {
    double best = 0;
    for (const bool folded : {false, true}) {
      for (UOp range : folded ? folded_ : loops_) {
        const std::optional<double> score = LaneScore(range, folded);
        if (!score || *score <= best || Lanes(range, folded) < std::min(kMinLanes, SizeOf(range))) {
          continue;
        }
        best = *score;
        lanes_range_ = range;
        lanes_folded_ = folded;
      }
    }
    if (!lanes_range_.valid()) return;
    lanes_ = Lanes(lanes_range_, lanes_folded_);
    if (lanes_ < 2) {
      lanes_range_ = UOp();
      return;
    }
  }

  // Whether some load inside the fold stays the same as `range` advances.
  bool Reuses(UOp range) const {
    return std::ranges::any_of(accesses_, [&](const Access& a) {
      return !a.store && StrideOf(a.address.src(1), range) == 0 &&
             std::ranges::any_of(folded_,
                                 [&](UOp f) { return dependence_->Depends(a.address.src(1), f); });
    });
  }

  static int64_t LargestDivisor(int64_t size, int64_t most) {
    for (int64_t d = std::min(size, most); d > 1; --d) {
      if (size % d == 0) return d;
    }
    return 1;
  }

  void PickTile() {
    // Two thirds of the registers hold the tile, the rest its operands.
    int64_t room = std::max<int64_t>(1, target_.vector_registers * 2 / 3);
    if (lanes_range_.valid() && !lanes_folded_) {
      const int64_t size = SizeOf(lanes_range_);
      if (size % (2 * lanes_) == 0 && Reuses(lanes_range_)) {
        moves_.push_back({Move::Kind::kUpcast, lanes_range_, 2});
        tile_ = 2;
        room /= 2;
      }
    }
    std::vector<UOp> candidates;
    for (UOp range : loops_) {
      if (range != lanes_range_ && Reuses(range)) candidates.push_back(range);
    }
    std::ranges::stable_sort(candidates, std::greater<>{}, SizeOf);
    const size_t dims = lanes_range_.valid() && !lanes_folded_ ? 1 : 2;
    for (size_t i = 0; i < std::min(dims, candidates.size()); ++i) {
      const int64_t most = dims == 2 ? 4 : std::min<int64_t>(room, 12);
      const int64_t amount = LargestDivisor(SizeOf(candidates[i]), most);
      if (amount == 1) continue;
      if (!tiled_.valid()) tiled_ = candidates[i];
      moves_.push_back({Move::Kind::kUpcast, candidates[i], amount});
      tile_ *= amount;
    }
  }

  void PickUnroll() {
    const UOp inner = folded_.back();
    if (inner == lanes_range_) return;
    const int64_t size = SizeOf(inner);
    if (size <= 8 && size * tile_ <= 96) {
      moves_.push_back({Move::Kind::kUnroll, inner, size});
    } else if (tile_ <= 8) {
      const int64_t amount = LargestDivisor(size, 4);
      if (amount > 1) moves_.push_back({Move::Kind::kUnroll, inner, amount});
    }
  }

  void PickThread() {
    if (lanes_range_.valid()) moves_.push_back({Move::Kind::kVectorize, lanes_range_, lanes_});
    const auto remaining = [&](UOp range) {
      int64_t tile = 1;
      for (const Move& m : moves_) tile *= m.range == range ? m.amount : 1;
      return (SizeOf(range) + tile - 1) / tile;
    };
    // The panel of the lanes stays in cache while the tiled range runs over it.
    const bool panel = tiled_.valid() && lanes_range_.valid() && !lanes_folded_;
    std::vector<UOp> order;
    for (UOp range : loops_) {
      if (panel && range == lanes_range_) continue;
      if (panel && range == tiled_) order.push_back(lanes_range_);
      order.push_back(range);
    }
    UOp best;
    for (UOp range : order) {
      if (!best.valid() || remaining(range) > remaining(best)) best = range;
      if (remaining(range) >= 4 * target_.threads) {
        best = range;
        break;
      }
    }
    if (best.valid() && remaining(best) > 1) moves_.push_back({Move::Kind::kThread, best, 0});
    for (UOp range : order) moves_.push_back({Move::Kind::kOuter, range, 0});
  }

  const UOp sink_;
  const Target& target_;
  std::optional<Dependence> dependence_;
  std::vector<UOp> loops_, folded_;
  std::vector<Access> accesses_;
  UOp reduce_;  // the only REDUCE, if there is one
  bool simple_ = true;
  size_t nodes_ = 0;
  int64_t widest_ = 1;
  UOp lanes_range_, tiled_;
  bool lanes_folded_ = false;
  int64_t lanes_ = 1;
  int64_t tile_ = 1;
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> PickMoves(UOp sink, const Target& target) {
  return Heuristic(sink, target).Run();
}

}  // namespace telegrad
