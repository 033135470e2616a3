#include "engine/lowering/workgroup_operands.h"

#include <algorithm>

#include "engine/lowering/mask_bounds.h"
#include "engine/lowering/panel_order.h"
#include "engine/lowering/ranges.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

int64_t PanelBytes(const Panel& panel) {
  const Staging& s = panel.staging;
  return s.ring * BytesOf(s.dtype, s.layout.elements());
}

class OperandStager {
 public:
  OperandStager(Rewriter& b, const Target& target, const OperandPlan& plan, int64_t* next_range,
                int64_t* next_slot)
      : b_(b),
        g_(*b.graph()),
        target_(target),
        p_(plan),
        s_(plan.sums),
        next_range_(*next_range),
        next_slot_(*next_slot),
        keys_(SizeOf(s_.key)),
        count_((keys_ + plan.block - 1) / plan.block) {}

  StagedOperands Run() {
    out_.blocks = g_.Range(next_range_++, AxisType::kReduce, BlocksShown());
    MakePanels(1);
    const auto in_pieces = [&](const std::optional<Panel>& panel) {
      const Staging& s = panel->staging;
      return s.shared->chunk * ByteSize(s.dtype) >= target_.async_bytes;
    };
    const auto copied = [&] { return in_pieces(out_.key) && in_pieces(out_.value); };
    if (target_.async_bytes == 0 || count_ == 1 || !out_.key || !out_.value || !copied()) {
      return out_;
    }
    constexpr int64_t kRing = 3, kAtOnce = 2;  // tiles, and workgroups of a processor
    const int64_t more = (kRing - 1) * (PanelBytes(*out_.key) + PanelBytes(*out_.value));
    if (kAtOnce * (out_.bytes + p_.other_bytes + more) > target_.local_bytes) return out_;
    MakePanels(kRing);
    if (!copied()) MakePanels(1);  // what is turned is copied in smaller pieces so
    return out_;
  }

 private:
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp Mul(UOp x, int64_t y) { return b_.Make(Op::kMul, {x, g_.Index(y)}); }
  UOp Least(UOp x, UOp y) {
    const UOp back = Mul(x, -1);
    return Mul(b_.Make(Op::kMax, {back, Mul(y, -1)}), -1);
  }

  // How many blocks have a key that a mask shows to some of the rows; all, if a value that it hides
  // is no finite number: 0 times that is none either.
  UOp BlocksShown() {
    const UOp all = g_.Index(count_);
    const UOp element = Substitute(b_, s_.element, {{s_.score.id(), {s_.scores, {}}}});
    const UOp keys = KeysShown(b_, element, s_.row, s_.key, s_.shared);
    if (!keys.valid() || !p_.value.valid() || count_ == 1) return all;
    const UOp some = b_.Make(Op::kMax, {keys, g_.Index(1)});
    const UOp up = Add(Least(some, g_.Index(keys_)), g_.Index(p_.block - 1));
    const UOp shown = b_.Make(Op::kFloorDiv, {up, g_.Index(p_.block)});
    return b_.Make(Op::kWhere, {AreFinite(shown), shown, all});
  }

  // Whether all values from the block `first` on are: the sum of 0 times each is no number else.
  // Threads share the elements of a block, neighbouring ones those of a key.
  UOp AreFinite(UOp first) {
    const DType dtype = s_.maximum.dtype();
    const int64_t size = SizeOf(p_.channel);
    int64_t lanes =
        std::min<int64_t>(target_.vector_bytes / ByteSize(p_.value.dtype()), target_.vector_lanes);
    while (size % lanes != 0) lanes /= 2;
    int64_t threads = 1;
    for (const UOp range : p_.threads) threads *= SizeOf(range);
    const int64_t chunks = p_.block * size / lanes, steps = (chunks + threads - 1) / threads;
    const UOp hidden = b_.Make(Op::kSub, {g_.Index(count_), first});
    std::vector<UOp> over{g_.Range(next_range_++, AxisType::kReduce, hidden)};
    UOp chunk = RowMajor(b_, p_.threads);
    if (steps > 1) {
      over.push_back(g_.Range(next_range_++, AxisType::kReduce, g_.Index(steps)));
      chunk = Add(Mul(over.back(), threads), chunk);
    }
    const UOp row = g_.Index(size / lanes);
    UOp channel = Mul(b_.Make(Op::kFloorMod, {chunk, row}), lanes);
    if (lanes > 1) {
      over.push_back(g_.Range(next_range_++, AxisType::kVector, g_.Index(lanes)));
      channel = Add(channel, over.back());
    }
    const UOp in_block = b_.Make(Op::kFloorDiv, {chunk, row});
    const UOp key = Add(Mul(Add(first, over[0]), p_.block), in_block);
    const UOp from = Substitute(b_, p_.value.src(0),
                                {{s_.key.id(), {key, {}}}, {p_.channel.id(), {channel, {}}}});
    UOp exists = b_.Make(Op::kCmpLt, {key, g_.Index(keys_)});
    if (from.num_src() == 3) exists = g_.Make(Op::kAnd, {from.src(2), exists});
    UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {from.src(0), from.src(1), exists})});
    if (value.dtype() != dtype) value = b_.Make(Op::kCast, dtype, {value});
    std::vector<UOp> sum{g_.Make(Op::kMul, {g_.ConstFloat(dtype, 0.0), value})};
    sum.insert(sum.end(), over.begin(), over.end());
    sum.insert(sum.end(), p_.threads.begin(), p_.threads.end());
    const UOp nothing = g_.Make(Op::kReduce, DType::kVoid, sum,
                                std::vector{static_cast<int64_t>(ReduceKind::kAdd)});
    return b_.Make(Op::kCmpLt, {g_.ConstFloat(dtype, -1.0), nothing});
  }

  SplitRange Split(UOp range, int64_t tile, UOp outer) {
    SplitRange out;
    out.range = range;
    out.size = SizeOf(range);
    out.tile = tile;
    out.outer = outer;
    out.within = g_.Index(0);
    return out;
  }

  // An operand of which the loop counts tiles of t, of k, or none.
  enum class Counts : uint8_t { kNone, kTiles, kReduced };
  Panel Stage(UOp load, const SplitRange& t, const SplitRange& k, Counts counts, int64_t ring) {
    const GroupCosts& costs = CostsOf(target_).group;
    const std::optional<TileInstruction>& instruction = p_.instruction;
    const bool by_k = instruction && RunsAlongReduced(b_, load, t.range, k.range);
    RowBytes bytes{.gap = costs.local_bytes, .chunk = costs.local_bytes, .banks = 0};
    if (by_k) {
      const bool first = (counts == Counts::kNone) != instruction->turned;
      bytes.gap =
          std::min(bytes.gap, BytesAlongReduced(instruction->info(), first ? 0 : 1, load.dtype()));
    }
    const std::vector<UOp> loops =
        counts == Counts::kNone ? std::vector<UOp>() : std::vector{out_.blocks};
    const PanelPlan plan{.load = load,
                         .t = t,
                         .k = k,
                         .threads = p_.threads,
                         .loops = loops,
                         .slot = next_slot_++,
                         .ring = ring,
                         .counts_reduced = counts != Counts::kTiles};
    Panel panel = PanelOf(b_, plan, by_k, bytes);
    out_.bytes += PanelBytes(panel);
    return panel;
  }

  void MakePanels(int64_t ring) {
    out_.bytes = next_slot_ = 0;
    const UOp none = g_.Index(0);
    const SplitRange key = Split(s_.key, p_.block, out_.blocks);
    if (p_.product) {
      const int64_t to = p_.instruction ? kWarpRows : kTermsTogether;
      const UOp k = p_.product->k;
      const SplitRange terms = Split(k, (SizeOf(k) + to - 1) / to * to, none);
      const SplitRange row = Split(s_.row, s_.rows(), none);
      out_.query = Stage(p_.product->rows, row, terms, Counts::kNone, 1);
      out_.key = Stage(p_.product->columns, key, terms, Counts::kTiles, ring);
    }
    if (!p_.value.valid()) return;
    const SplitRange channel = Split(p_.channel, p_.channels, none);
    out_.value = Stage(p_.value, channel, key, Counts::kReduced, ring);
  }

  Rewriter& b_;
  Graph& g_;
  const Target& target_;
  const OperandPlan& p_;
  const CoupledSums& s_;
  int64_t &next_range_, &next_slot_;
  const int64_t keys_, count_;  // count_: blocks
  StagedOperands out_;
};

}  // namespace

StagedOperands StageOperands(Rewriter& b, const Target& target, const OperandPlan& plan,
                             int64_t* next_range, int64_t* next_slot) {
  return OperandStager(b, target, plan, next_range, next_slot).Run();
}

void FillOperands(Rewriter& b, StagedOperands* operands, int64_t* next_range) {
  if (operands->query) {
    operands->query->tile = StageTiles(b, {&operands->query->staging, 1}, {}, next_range)[0];
  }
  std::vector<Panel*> panels;
  std::vector<Staging> tiles;
  for (auto* panel : {&operands->key, &operands->value}) {
    if (!*panel) continue;
    panels.push_back(&**panel);
    tiles.push_back((*panel)->staging);
  }
  if (tiles.empty()) return;
  const std::vector<StagedTile> filled = StageTiles(b, tiles, {}, next_range);
  for (size_t i = 0; i < filled.size(); ++i) panels[i]->tile = filled[i];
}

}  // namespace telegrad
