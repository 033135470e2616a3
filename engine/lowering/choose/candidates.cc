// A neighbour is an edit of the list, which then is checked move by move: most edits that make no
// sense are refused there, so none of the conditions of moves are repeated here.
#include "engine/lowering/choose/candidates.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "engine/lowering/heuristic.h"

namespace telegrad {
namespace {

using MK = Move::Kind;

constexpr int64_t kSteps[] = {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48, 64};
constexpr int64_t kBlocks[] = {32, 64, 128, 256, 512};

bool IsSplit(MK kind) {
  return kind == MK::kVectorize || kind == MK::kUpcast || kind == MK::kUnroll || kind == MK::kLocal;
}

// Smaller and larger amounts next to `amount`.
std::vector<int64_t> Near(MK kind, int64_t amount) {
  std::vector<int64_t> out;
  if (kind == MK::kVectorize || kind == MK::kLocal || kind == MK::kBlock || kind == MK::kStage) {
    out = {amount * 2, amount / 2};
  } else if (kind == MK::kUpcast || kind == MK::kUnroll) {
    const auto at = std::ranges::lower_bound(kSteps, amount);
    for (const int64_t* p = at - std::min<int64_t>(2, at - kSteps); p != std::end(kSteps); ++p) {
      if (p > at + 2) break;
      out.push_back(*p);
    }
  }
  std::erase_if(out, [&](int64_t n) { return n < 2 || n == amount; });
  return out;
}

class Editor {
 public:
  Editor(MoveSpace& space, const MoveList& moves) : space_(space), moves_(moves) {
    seen_.insert(Print(moves));
  }

  std::vector<MoveList> Run() {
    const auto base = space_.Add(moves_);
    if (!base.ok()) return {};
    const std::optional<KernelShape> shape = ReadShape(base->root, space_.target());
    if (!shape) return {};
    first_ = base->done.size();
    for (size_t i = first_; i < moves_.size(); ++i) Change(i);
    if (first_ > 0) Keep({moves_.begin() + static_cast<int64_t>(first_), moves_.end()});
    const Target& target = space_.target();
    for (const UOp range : shape->d.ranges) {
      const int64_t r = range.range_id();
      for (const MK kind : {MK::kUpcast, MK::kUnroll}) {
        for (const int64_t n : {2, 4, 8}) Insert({kind, r, n, 0});
      }
      MoveLanes(r);
      if (Takes(target, MK::kLocal)) {
        for (const int64_t n : {4, 8, 16, 32}) {
          for (int axis = 0; axis < 2; ++axis) Insert({MK::kLocal, r, n, axis});
        }
      }
      if (Takes(target, MK::kThread)) ChangeThread(r);
      if (Takes(target, MK::kBlock)) {
        for (const int64_t n : kBlocks) Append({MK::kBlock, r, n, 0});
      }
    }
    return std::move(out_);
  }

 private:
  void Keep(MoveList list) {
    if (!seen_.insert(Print(list)).second) return;
    if (space_.Add(list).ok()) out_.push_back(std::move(list));
  }

  // The move in its place with another amount, without it, or behind the next one.
  void Change(size_t i) {
    const Move& m = moves_[i];
    for (const int64_t n : Near(m.kind, m.amount)) {
      MoveList list = moves_;
      list[i].amount = n;
      Keep(std::move(list));
    }
    MoveList without = moves_;
    without.erase(without.begin() + static_cast<int64_t>(i));
    Keep(std::move(without));
    if (i + 1 < moves_.size()) {
      MoveList swapped = moves_;
      std::swap(swapped[i], swapped[i + 1]);
      Keep(std::move(swapped));
    }
  }

  // Before the lanes, threads and loops.
  void Insert(const Move& move) {
    const auto first = moves_.begin() + static_cast<int64_t>(first_);
    const bool has = std::any_of(first, moves_.end(), [&](const Move& m) {
      return m.range == move.range && m.kind == move.kind;
    });
    if (has) return;
    MoveList list = moves_;
    list.insert(list.begin() + static_cast<int64_t>(first_), move);
    Keep(std::move(list));
  }

  // Before the first OUTER, and before each of them.
  void Append(const Move& move) {
    for (size_t i = first_; i <= moves_.size(); ++i) {
      if (i < moves_.size() && moves_[i].kind != MK::kOuter) continue;
      MoveList list = moves_;
      list.insert(list.begin() + static_cast<int64_t>(i), move);
      Keep(std::move(list));
    }
  }

  void MoveLanes(int64_t range) {
    MoveList list = moves_;
    bool had = false;
    for (Move& m : list) {
      if (m.kind != MK::kVectorize) continue;
      had = true;
      m.range = range;
      // Splits of the range stand before its lanes.
      std::erase_if(list,
                    [&](const Move& x) { return x.range == range && IsSplit(x.kind) && x != m; });
      Keep(std::move(list));
      break;
    }
    if (!had) Insert({MK::kVectorize, range, std::max(2, space_.target().vector_bytes / 4), 0});
  }

  // Workers share another range, or this one, too.
  void ChangeThread(int64_t range) {
    MoveList list = moves_;
    const auto at = std::ranges::find(list, MK::kThread, &Move::kind);
    if (at == list.end() || at->range == range) return;
    MoveList both = moves_;
    both.insert(both.begin() + (at - list.begin()) + 1, {MK::kThread, range, 0, 0});
    Keep(std::move(both));
    at->range = range;
    Keep(std::move(list));
  }

  MoveSpace& space_;
  const MoveList& moves_;
  size_t first_ = 0;  // move that is not carried out at once
  std::set<std::string> seen_;
  std::vector<MoveList> out_;
};

}  // namespace

std::vector<Candidate> FirstCandidates(MoveSpace& space, size_t most) {
  std::vector<Candidate> out;
  MovedKernel kernel = space.Begin();
  const Target& target = space.target();
  MoveList first;
  const auto add = [&](const MoveList& moves) {
    for (const Move& move : moves) {
      auto next = space.Add(std::move(kernel), move);
      if (!next.ok()) return false;
      kernel = *std::move(next);
    }
    first.insert(first.end(), moves.begin(), moves.end());
    return true;
  };
  if (!add(PickJoins(kernel.root, target))) return out;
  for (int i = 0; i < kPeelRounds; ++i) {
    MoveList round = PickPeels(kernel.root, space.arguments(), target);
    if (round.empty()) break;
    round.push_back({});
    if (!add(round)) return out;
  }
  for (RankedMoves& ranked : RankMoves(kernel.root, space.arguments(), target, most)) {
    Candidate& candidate = out.emplace_back(first, ranked.cycles);
    candidate.moves.insert(candidate.moves.end(), ranked.moves.begin(), ranked.moves.end());
  }
  return out;
}

std::vector<Candidate> Neighbours(MoveSpace& space, const MoveList& moves) {
  std::vector<Candidate> out;
  for (MoveList& list : Editor(space, moves).Run()) {
    const auto kernel = space.Add(list);
    if (!kernel.ok()) continue;
    const double cost =
        PredictCycles(kernel->root, space.arguments(), space.target(), kernel->pending);
    out.push_back({std::move(list), cost});
  }
  std::ranges::stable_sort(out, {}, &Candidate::cost);
  return out;
}

}  // namespace telegrad
