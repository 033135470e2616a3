#include "engine/lowering/workgroup_operands.h"

#include <algorithm>

#include "engine/lowering/panel_order.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/shown_blocks.h"
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
    const BlockWalk walk{.sums = s_,
                         .value = p_.value,
                         .channel = p_.channel,
                         .threads = p_.threads,
                         .block = p_.block};
    const UOp shown = BlocksShown(b_, target_, walk, &next_range_);
    out_.blocks = g_.Range(next_range_++, AxisType::kReduce, shown);
    MakePanels(1);
    const auto in_pieces = [&](const std::optional<Panel>& panel) {
      const Staging& s = panel->staging;
      return s.shared->chunk * ByteSize(s.dtype) >= target_.async_bytes;
    };
    const auto copied = [&] { return in_pieces(out_.key) && in_pieces(out_.value); };
    if (target_.async_bytes == 0 || count_ == 1 || !out_.key || !out_.value || !copied()) {
      return out_;
    }
    const GroupCosts& costs = CostsOf(target_).group;
    const int64_t more = (costs.block_ring - 1) * (PanelBytes(*out_.key) + PanelBytes(*out_.value));
    if (costs.resident * (out_.bytes + p_.other_bytes + more) > target_.local_bytes) return out_;
    MakePanels(costs.block_ring);
    if (!copied()) MakePanels(1);  // what is turned is copied in smaller pieces so
    return out_;
  }

 private:
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
    RowBytes bytes{.gap = costs.local_bytes, .chunk = costs.local_bytes, .banks = costs.banks};
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
      const UOp k = p_.product->k;
      const int64_t whole = (SizeOf(k) + p_.terms - 1) / p_.terms * p_.terms;
      const SplitRange terms = Split(k, whole, none);
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
