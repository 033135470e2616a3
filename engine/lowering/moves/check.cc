// A list for a processor has an order: moves that split ranges, then THREAD, then OUTER and BLOCK,
// so that each move is checked against the final tile of its range. A list for a device with
// workgroups has an order only among the moves of one range: from the outermost part to the lanes.
#include "engine/lowering/moves/check.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/ir/product_tile.h"
#include "engine/lowering/block_choice.h"
#include "engine/lowering/join.h"
#include "engine/lowering/moves/padding.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/staging.h"
#include "engine/lowering/workgroup_matmul.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

using Kind = Move::Kind;

constexpr int64_t kMaxAmount = 1024;        // of what is written out or held in registers
constexpr int64_t kMaxReplicas = 1024;      // of a work
constexpr double kMaxOperations = 1 << 14;  // of a work with its replicas

class Checker {
 public:
  Checker(const KernelShape& shape, const MoveList& before, const Move& move, const Target& target)
      : s_(shape), before_(before), move_(move), target_(target) {}

  absl::Status Peel() {
    TG_RETURN_IF_ERROR(FindRange());
    const int64_t size = s_.size[Index()];
    if (move_.amount < 1 || move_.amount >= size) {
      return No("the amount is not between 1 and the size ", size);
    }
    if (PaddingOf(target_).gates_reductions) {
      return No("reductions are gated where there are workgroups");
    }
    if (Whole()) return No("the range is not split: memory of a thread lives in each iteration");
    if (KeptInOrder()) return No("a float sum of a deterministic target stays one sequence");
    if (IsFold()) return Room(1);
    if (s_.once) return No("some element is read that the same nest writes");
    if (s_.inner != 0) return No("both parts would share the loops of a nest inside");
    if (s_.outer.empty() || s_.outer.back() != r_) {
      return No("only the innermost of the loops that all stores share is peeled");
    }
    return Room(2 * static_cast<int>(s_.size.size()));  // both parts have ranges of their own
  }

  absl::Status Join(UOp sink) {
    TG_RETURN_IF_ERROR(FindRange(move_.inner));
    const int inner = std::exchange(r_, -1);
    TG_RETURN_IF_ERROR(FindRange());
    TG_RETURN_IF_ERROR(OfTarget());
    if (r_ == inner) return No("a range is not joined to itself");
    const RangeSet both = Bit(r_) | Bit(inner);
    if ((both & (s_.whole | s_.inner | s_.around_nests)) != 0) {
      return No("a nest inside of the loops is done once at a time");
    }
    const bool folds =
        std::ranges::any_of(s_.works, [&](const Work& w) { return (w.own & both) == both; });
    if (!folds && (s_.parallel & both) != both) {
      return No("both are reduced, or all stores depend on both");
    }
    if (!AreClosedTogether(sink, s_.d.ranges[Index()], s_.d.ranges[static_cast<size_t>(inner)])) {
      return No("what ends with one of the ranges does not end with the other");
    }
    int64_t size;
    return CheckedMul(s_.size[Index()], s_.size[static_cast<size_t>(inner)], &size)
               ? absl::OkStatus()
               : No("the joined range has too many iterations");
  }

  absl::Status Other() {
    TG_RETURN_IF_ERROR(FindRange());
    if (before_.size() >= kMaxMoves) return No("the list is too long");
    TG_RETURN_IF_ERROR(OfTarget());
    if (s_.threads) return OfThreads();
    switch (move_.kind) {
      case Kind::kVectorize:
      case Kind::kUpcast:
      case Kind::kUnroll:
        return Replicated();
      case Kind::kThread:
        if (Had(Kind::kOuter) || Had(Kind::kBlock)) {
          return No("THREAD stands before OUTER and BLOCK");
        }
        if (Had(Kind::kThread, move_.range)) return No("workers share the range already");
        if (!IsOuter()) return No("not all stores are in the loop");
        if (!Has(s_.parallel, r_)) return No("some store does not depend on the range");
        if (Trips() < 2) return No("one iteration is left");
        if (HasComputedEnd()) return No("where the loop ends is computed");
        if (Had(Kind::kThread) && !AreConstant()) {
          return No("workers share several loops only where no run chooses their ends");
        }
        TG_RETURN_IF_ERROR(Apart(TileOf(move_.range)));
        return SharedByWorkers() ? absl::OkStatus() : No("workers would share too many iterations");
      case Kind::kOuter:
        if (!IsOuter()) return No("not all stores are in the loop");
        if (Had(Kind::kOuter, move_.range)) return No("the range was moved before");
        if (HasComputedEnd()) return No("where the loop ends is computed");
        return Trips() < 2 ? No("one iteration is left") : absl::OkStatus();
      case Kind::kBlock:
        return IsFold() ? BlockOfFold() : PartOfLoop();
      case Kind::kLocal:
        return Local();
      case Kind::kGroup:
        if (Had(Kind::kGroup, move_.range)) return No("the range has workgroups already");
        if (Whole()) return No("the range is not split: memory of a thread lives in it");
        if (!Has(s_.parallel, r_)) return No("some store does not depend on the range");
        return absl::OkStatus();
      case Kind::kTensorcore:
      case Kind::kStage:
        return Product();
      case Kind::kPeel:
      case Kind::kSeparate:
      case Kind::kJoin:
        break;
    }
    return No("PEEL, SEPARATE and JOIN stand before all other moves");
  }

 private:
  template <typename... Why>
  absl::Status No(const Why&... why) const {
    return FailedPrecondition("move ", Print(move_), ": ", why...);
  }

  absl::Status OfTarget() {
    if (Takes(target_, move_.kind)) return absl::OkStatus();
    return RowOf(move_.kind).levels.Has(ParallelLevel::kGroups)
               ? No("a move for workgroups, which the target does not have")
               : No("a move for workers, which the target does not have");
  }

  // Each thread has its iterations: what is left are the loops around all of them.
  absl::Status OfThreads() const {
    if (move_.kind != Kind::kGroup) return No("threads share the iterations of the kernel already");
    if (!IsOuter()) return No("not all stores are in the loop");
    return Had(Kind::kGroup, move_.range) ? No("the range has workgroups already")
                                          : absl::OkStatus();
  }

  absl::Status FindRange() { return FindRange(move_.range); }
  absl::Status FindRange(int64_t number) {
    for (size_t i = 0; i < s_.d.ranges.size(); ++i) {
      if (s_.d.ranges[i].range_id() != number) continue;
      if (r_ >= 0) return No("several ranges have that number");
      r_ = static_cast<int>(i);
    }
    return r_ < 0 ? No("the kernel has no such range") : absl::OkStatus();
  }

  size_t Index() const { return static_cast<size_t>(r_); }
  bool Whole() const { return Has(s_.whole, r_); }
  bool IsFold() const {
    return std::ranges::any_of(s_.works, [&](const Work& w) { return Has(w.own, r_); });
  }
  bool KeptInOrder() const { return KeepsOrder(target_) && Has(s_.summed, r_); }
  bool IsLoop() const { return Has(s_.loops, r_); }
  bool IsOuter() const { return std::ranges::find(s_.outer, r_) != s_.outer.end(); }

  // From other loops, or from values in memory.
  bool HasComputedEnd() const {
    const UOp end = s_.d.ranges[Index()].src(0);
    return std::ranges::any_of(PostOrder(end), [&](uint32_t id) {
      const Op op = end.graph()->op(id);
      return op == Op::kRange || op == Op::kLoad;
    });
  }
  // The ends of this loop and of those that workers share already.
  bool AreConstant() const {
    return std::ranges::all_of(s_.d.ranges, [&](UOp range) {
      const bool shared = range.range_id() == move_.range || Had(Kind::kThread, range.range_id());
      return !shared || range.src(0).is_const();
    });
  }

  int64_t TileOf(int64_t range) const {
    int64_t tile = 1;
    for (const Move& m : before_) tile *= m.range == range && RowOf(m.kind).splits() ? m.amount : 1;
    return tile;
  }
  bool Had(Kind kind) const {
    return std::ranges::any_of(before_, [&](const Move& m) { return m.kind == kind; });
  }
  bool Had(MovePart part) const {
    return std::ranges::any_of(before_, [&](const Move& m) { return RowOf(m.kind).part == part; });
  }
  bool Had(MovePart part, int64_t range) const {
    return std::ranges::any_of(
        before_, [&](const Move& m) { return RowOf(m.kind).part == part && m.range == range; });
  }
  bool Had(Kind kind, int64_t range) const {
    return std::ranges::any_of(before_,
                               [&](const Move& m) { return m.kind == kind && m.range == range; });
  }

  // The parts of a workgroup's ranges replace them, and what is too much is found as it is made.
  absl::Status Room(int more) const {
    if (target_.has(ParallelLevel::kGroups)) return absl::OkStatus();
    int ranges = static_cast<int>(s_.size.size()) + more;
    for (const Move& m : before_) {
      ranges += RowOf(m.kind).splits() && m.kind != Kind::kBlock ? 1 : 0;
    }
    return ranges > kMaxRanges ? No("the kernel would have more than ", kMaxRanges, " ranges")
                               : absl::OkStatus();
  }

  // What every split needs: a range that may be split, and code of bounded length.
  absl::Status Split() const {
    if (Whole()) return No("the range is not split: memory of a thread lives in each iteration");
    if (!IsFold() && !IsLoop()) return No("the iterations of the range run in order");
    if (move_.amount < 1 || move_.amount > kMaxAmount) {
      return No("the amount is not between 1 and ", kMaxAmount);
    }
    return Room(1);
  }

  absl::Status FewReplicas() const {
    if (Has(s_.around_nests, r_)) return No("a nest inside of the loop is done once at a time");
    const auto replicated = [](Kind kind) {
      const MovePart part = RowOf(kind).part;
      return part == MovePart::kReplicas || part == MovePart::kUnrolled;
    };
    for (const Work& work : s_.works) {
      if (!Has(work.all, r_)) continue;
      int64_t replicas = move_.amount;
      for (const Move& m : before_) {
        const bool of_work = std::ranges::any_of(s_.d.ranges, [&](UOp range) {
          return range.range_id() == m.range && Has(work.all, s_.d.IndexOf(range));
        });
        if (of_work && replicated(m.kind)) replicas *= m.amount;
        if (replicas > kMaxReplicas) return No("more than ", kMaxReplicas, " replicas of a value");
      }
      const auto operations = static_cast<double>(work.operations.size() + work.accesses.size());
      if (static_cast<double>(replicas) * operations > kMaxOperations) {
        return No("the innermost loop would have more than ", kMaxOperations, " operations");
      }
    }
    return absl::OkStatus();
  }

  // The lanes of a work are one axis.
  absl::Status Lanes() const {
    const auto amount = static_cast<uint64_t>(move_.amount);
    const int most = std::min(target_.vector_bytes, target_.vector_lanes);
    if (!std::has_single_bit(amount) || move_.amount < 2 || move_.amount > most) {
      return No("lanes are a power of two of at most ", most);
    }
    for (const Work& work : s_.works) {
      if (!Has(work.all, r_)) continue;
      for (size_t i = 0; i < s_.d.ranges.size(); ++i) {
        if (Has(work.all, static_cast<int>(i)) &&
            Had(MovePart::kLanes, s_.d.ranges[i].range_id())) {
          return No("what depends on the range has lanes already");
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Divides() const {
    const int64_t size = s_.size[Index()], tile = TileOf(move_.range) * move_.amount;
    return size % tile == 0 ? absl::OkStatus()
                            : No("a tile of ", tile, " does not divide the reduced size ", size);
  }

  bool HadOrder() const { return Had(Kind::kThread) || Had(Kind::kOuter) || Had(Kind::kBlock); }

  absl::Status Replicated() const {
    if (HadOrder()) return No("ranges are split before THREAD, OUTER and BLOCK");
    TG_RETURN_IF_ERROR(Split());
    if (IsFold() && !PaddingOf(target_).gates_reductions) TG_RETURN_IF_ERROR(Divides());
    if (KeptInOrder()) TG_RETURN_IF_ERROR(InOrder());
    if (Had(MovePart::kLanes, move_.range)) return No("lanes are the last split of a range");
    if (Had(Kind::kTensorcore, move_.range)) return No("TENSORCORE is the last split");
    if (part_ == MovePart::kLanes) return Lanes();
    if (part_ == MovePart::kUnrolled && !IsFold()) {
      return No("only the range of a reduction is unrolled");
    }
    if (move_.amount < 2) return No("the amount is not at least 2");
    return FewReplicas();
  }

  // Lanes are added one after the other; what is unrolled is added before the next iteration of any
  // loop outside of it.
  absl::Status InOrder() const {
    if (part_ == MovePart::kReplicas) {
      return No("a float sum of a deterministic target has one accumulator");
    }
    if (part_ == MovePart::kLanes) {
      if (Has(s_.summed_alone, r_) && move_.amount == s_.size[Index()]) return absl::OkStatus();
      return No("lanes of a float sum of a deterministic target are all of its terms");
    }
    for (const Work& work : s_.works) {
      if (!work.is_reduce() || !Has(work.own, r_) || !IsOrderedSum(work.root)) continue;
      for (int i = work.root.num_src() - 1; s_.d.IndexOf(work.root.src(i)) != r_; --i) {
        if (TileOf(work.root.src(i).range_id()) < SizeOf(work.root.src(i))) {
          return No("the ranges inside of it are not unrolled, and the order of a float sum stays");
        }
      }
    }
    return absl::OkStatus();
  }

  int64_t Trips() const { return Trips(move_.range, s_.size[Index()]); }
  int64_t Trips(int64_t range, int64_t size) const {
    const int64_t tile = TileOf(range);
    return (size + tile - 1) / tile;
  }

  // Where the last tile begins earlier, two workers store some elements, and one would read what
  // the other one stores.
  absl::Status Apart(int64_t tile) const {
    const int64_t size = s_.size[Index()];
    const bool overlap =
        size % tile != 0 && size > tile && !s_.once && PaddingOf(target_).moves_back;
    return overlap && s_.rereads
               ? No("two tiles of ", tile, " would store elements that a worker reads again")
               : absl::OkStatus();
  }

  // Whether the iterations of all ranges that workers share, with this one, can be counted.
  bool SharedByWorkers() const {
    int64_t all = Trips();
    for (size_t i = 0; i < s_.d.ranges.size(); ++i) {
      const int64_t range = s_.d.ranges[i].range_id();
      if (!Had(Kind::kThread, range)) continue;
      if (!CheckedMul(all, Trips(range, s_.size[i]), &all)) return false;
    }
    return true;
  }

  bool HadFoldBlock() const {
    return std::ranges::any_of(before_, [&](const Move& m) {
      return m.kind == Kind::kBlock && std::ranges::any_of(s_.d.ranges, [&](UOp range) {
               return range.range_id() == m.range && IsType(range, AxisType::kReduce);
             });
    });
  }

  absl::Status BlockOfFold() const {
    if (HadFoldBlock()) return No("a reduction is in blocks already");
    if (KeptInOrder()) return No("a float sum of a deterministic target stays one sequence");
    if (s_.whole != 0) return No("the kernel keeps memory between its nests");
    TG_RETURN_IF_ERROR(Room(kBlockRanges));
    TG_RETURN_IF_ERROR(Divides());
    if (Trips() <= move_.amount) return No("one block is left");
    for (const Work& work : s_.works) {
      if (!work.is_reduce() || !Has(work.own, r_)) continue;
      const std::vector<uint32_t> body = PostOrder(work.root.src(0));
      if (std::ranges::any_of(
              body, [&](uint32_t id) { return work.root.graph()->op(id) == Op::kReduce; })) {
        return No("the reduction has another one inside of it");
      }
    }
    return absl::OkStatus();
  }

  absl::Status PartOfLoop() const {
    if (!IsOuter()) return No("not all stores are in the loop");
    if (HadFoldBlock()) return No("BLOCK of a loop stands before BLOCK of a reduction");
    if (Had(Kind::kBlock, move_.range)) return No("the loop has parts already");
    if (Had(Kind::kOuter, move_.range)) return No("the range was moved before");
    if (s_.whole != 0) return No("the kernel keeps memory between its nests");
    TG_RETURN_IF_ERROR(Room(1));
    const int64_t size = s_.size[Index()], part = TileOf(move_.range) * move_.amount;
    if (Trips() <= move_.amount) return No("one part is left");
    if (size % part != 0 && (s_.once || size <= part)) {
      return No("parts of ", part, " iterations do not divide the size ", size);
    }
    if (Had(Kind::kThread, move_.range)) TG_RETURN_IF_ERROR(Apart(part));
    return absl::OkStatus();
  }

  absl::Status Local() const {
    TG_RETURN_IF_ERROR(Split());
    if (Had(Kind::kLocal, move_.range)) return No("the range has threads already");
    if (Had(MovePart::kLanes, move_.range)) return No("lanes are the last split of a range");
    if (s_.in_place && !Has(s_.parallel, r_)) {
      return No("memory is both read and written, and some store does not depend on the range");
    }
    int64_t threads = 1;
    bool seen[kMaxThreadAxes] = {};
    for (const Move& m : before_) {
      if (m.kind != Kind::kLocal) continue;
      if (m.axis == move_.axis && m.amount != move_.amount) {
        return No("the axis has ", m.amount, " threads");
      }
      if (!std::exchange(seen[m.axis], true)) threads *= m.amount;
    }
    if (!seen[move_.axis]) threads *= move_.amount;
    if (threads > target_.group_threads) {
      return No(threads, " threads in a workgroup, at most ", target_.group_threads);
    }
    for (const Work& work : s_.works) {
      if (!Has(work.all, r_)) continue;
      for (const Move& m : before_) {
        const bool same = m.kind == Kind::kLocal && m.axis == move_.axis;
        if (same && std::ranges::any_of(s_.d.ranges, [&](UOp range) {
              return range.range_id() == m.range && Has(work.all, s_.d.IndexOf(range));
            })) {
          return No("what depends on the range is shared on that axis already");
        }
      }
    }
    return absl::OkStatus();
  }

  // TENSORCORE and STAGE are for products alone.
  absl::Status Product() const {
    const std::optional<Matmul> p = FindMatmul(s_);
    if (!p) return No("the kernel is not a matrix product");
    if (!target_.stages) return No("local memory is not nearer than other memory");
    if (move_.kind == Kind::kStage) {
      constexpr int64_t kMostRing = 16;
      if (move_.range != p->k.range_id()) return No("not the range of the reduction");
      if (move_.ring == 1) return absl::OkStatus();
      if (move_.ring > kMostRing) return No("a ring has at most ", kMostRing, " tiles");
      if (move_.ring == kRingOfRegisters || target_.async_bytes > 0) return absl::OkStatus();
      return No("there are no asynchronous copies into local memory, which rings of more than ",
                kRingOfRegisters, " tiles are for");
    }
    const bool columns = move_.range == p->n.range_id();
    std::optional<MmaKind> kind = MmaFor(target_.matrix, p->a.dtype());
    if (const auto other = MmaFor(target_.matrix, p->a.dtype(), columns ? move_.amount : 0)) {
      kind = other;
    }
    if (!kind || target_.warp == 1) return No("there is no instruction for the type");
    const MmaInfo& mma = AllMmas()[static_cast<size_t>(*kind)];
    const int64_t wanted = move_.range == p->m.range_id()   ? mma.m
                           : move_.range == p->n.range_id() ? mma.n
                           : move_.range == p->k.range_id() ? mma.k
                                                            : 0;
    if (move_.amount != wanted) return No("the instruction has ", wanted, " iterations of it");
    if (Had(MovePart::kLanes)) return No("an instruction's operands are not lanes");
    return Had(Kind::kTensorcore, move_.range) ? No("the range has it already") : absl::OkStatus();
  }

  const KernelShape& s_;
  const MoveList& before_;
  const Move& move_;
  const Target& target_;
  const MovePart part_ = RowOf(move_.kind).part;
  int r_ = -1;  // the move's range
};

absl::Status CheckProduct(const KernelShape& s, const MoveList& moves, const Target& target) {
  const auto no = [](std::string_view why) { return FailedPrecondition("moves: ", why); };
  const std::optional<Matmul> p = FindMatmul(s);
  if (!p) return no("the kernel is not a matrix product");
  int64_t tile[3] = {1, 1, 1};
  int instructions = 0, stages = 0;
  const int64_t number[3] = {p->m.range_id(), p->n.range_id(), p->k.range_id()};
  int64_t staged = 0, ring = 1;
  bool folds_by_threads = false, replicated = false;
  for (const Move& m : moves) {
    instructions += m.kind == Kind::kTensorcore;
    stages += m.kind == Kind::kStage;
    if (m.kind == Kind::kStage) {
      staged = m.amount;
      ring = m.ring;
      continue;
    }
    bool of_tile = false;
    for (int i = 0; i < 3; ++i) {
      if (m.range != number[i]) continue;
      of_tile = true;
      if (m.kind != Kind::kGroup) tile[i] *= m.amount;
    }
    const MovePart part = RowOf(m.kind).part;
    const bool replicates =
        part == MovePart::kReplicas || part == MovePart::kUnrolled || part == MovePart::kLanes;
    replicated |= replicates && !of_tile && m.amount > 1;
    folds_by_threads |=
        m.range == number[2] && (part == MovePart::kThreads || part == MovePart::kLanes);
  }
  if (stages != 1) return no("TENSORCORE needs one STAGE");
  if (instructions != 0 && instructions != 3) return no("TENSORCORE is for all three ranges");
  if (staged != tile[2]) return no("STAGE needs the amount of the tile of the reduction's range");
  if (folds_by_threads) return no("threads and lanes do not share a staged reduction");
  // The second one would be stored to its place while threads still read the first one.
  if (ring > 1 && replicated) return no("a ring has one tile of an operand in an iteration");
  const int64_t elements = ring * PanelElements(tile[0], tile[1], tile[2], target);
  if (elements * ByteSize(p->a.dtype()) > target.local_bytes) {
    return no("the staged operands are more than local memory");
  }
  for (int i = 0; i < 2; ++i) {
    const bool grouped = std::ranges::any_of(
        moves, [&](const Move& m) { return m.kind == Kind::kGroup && m.range == number[i]; });
    if (!grouped) return no("the rows and columns of a staged product are workgroups");
  }
  if (instructions == 0) return absl::OkStatus();
  int64_t threads = target.warp;
  for (const Move& m : moves) threads *= m.kind == Kind::kLocal ? m.amount : 1;
  return threads <= target.group_threads ? absl::OkStatus() : no("too many warps in a workgroup");
}

}  // namespace

absl::Status CheckPeel(const KernelShape& shape, const Move& move, const Target& target) {
  return Checker(shape, {}, move, target).Peel();
}

absl::Status CheckJoin(const KernelShape& shape, UOp sink, const Move& move, const Target& target) {
  return Checker(shape, {}, move, target).Join(sink);
}

absl::Status CheckMove(const KernelShape& shape, const MoveList& before, const Move& move,
                       const Target& target) {
  return Checker(shape, before, move, target).Other();
}

absl::Status CheckComplete(const KernelShape& shape, const MoveList& moves, const Target& target) {
  for (const int r : shape.outer) {
    const int64_t number = shape.d.ranges[static_cast<size_t>(r)].range_id();
    if (shape.threads && std::ranges::find(moves, number, &Move::range) == moves.end()) {
      return FailedPrecondition("moves: the range r", number, " is around threads, and no GROUP");
    }
  }
  const bool product = std::ranges::any_of(
      moves, [](const Move& m) { return m.kind == Kind::kStage || m.kind == Kind::kTensorcore; });
  return product ? CheckProduct(shape, moves, target) : absl::OkStatus();
}

}  // namespace telegrad
