// The copies run one after another, so each reads the result of those before it. Graphs in which a
// copy needs an older value are refused.
#include "engine/execution/copy_executable.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/execution/bindings.h"
#include "engine/execution/slot_uses.h"
#include "engine/schedule/piece.h"

namespace telegrad {
namespace {

// The part of a slot that a node is a view of.
struct SlotRange {
  int32_t slot = -1;   // below 0: not a contiguous range of a slot
  int64_t offset = 0;  // bytes
  int version = 0;     // number of stores to the slot before it
};

class CopyExecutable final : public Executable {
 public:
  CopyExecutable(Device* device, std::vector<SlotUse> slots)
      : device_(*device), slots_(std::move(slots)) {}

  absl::Status Encode(UOp sink) {
    const Graph& g = *sink.graph();
    NodeMap<SlotRange> pieces(g);
    std::vector<int> stores(slots_.size(), 0);
    std::vector<PredictedCommand> commands;
    for (const uint32_t id : PostOrder(sink)) {
      const UOp u = g.at(id);
      if (!u.is(Op::kStore)) {
        pieces[id] = RangeOf(u, pieces);
        continue;
      }
      const SlotRange &to = pieces[u.src(0).id()], &from = pieces[u.src(1).id()];
      if (from.slot < 0) return Computes(u.src(1), pieces);
      if (to.slot < 0) return Computes(u.src(0), pieces);
      if (from.version != stores[static_cast<size_t>(from.slot)]) {
        return Unimplemented(device_.name(),
                             " runs no programs, and copies alone do not keep what "
                             "slot ",
                             from.slot,
                             " held before the graph overwrote it; copy it to a "
                             "device that computes");
      }
      const int64_t bytes = BytesOf(u.src(1).dtype(), NumElements(u.src(1).shape()));
      AddCopy({{to.slot, to.offset}, {from.slot, from.offset}, bytes}, device_, &commands);
      cost_.bytes += 2 * static_cast<double>(bytes);
      pieces[id] = {to.slot, 0, ++stores[static_cast<size_t>(to.slot)]};
    }
    for (const SlotUse& slot : slots_) {
      (slot.written ? cost_.output_bytes : cost_.input_bytes) += slot.bytes;
    }
    TG_ASSIGN_OR_RETURN(slices_, EncodeSlices(device_, std::move(commands)));
    return absl::OkStatus();
  }

  std::span<const SlotUse> slots() const override { return slots_; }
  std::span<const KernelInfo> kernels() const override { return {}; }
  RunCost cost() const override { return cost_; }

 private:
  static SlotRange RangeOf(UOp u, const NodeMap<SlotRange>& pieces) {
    if (u.is(Op::kParam)) return {.slot = static_cast<int32_t>(u.slot())};
    if (u.num_src() == 0) return {};
    SlotRange out = pieces.at(u.src(0).id());
    if (u.is(Op::kAfter)) {
      for (int i = 1; i < u.num_src(); ++i) {
        const SlotRange& store = pieces.at(u.src(i).id());
        if (store.slot == out.slot) out.version = std::max(out.version, store.version);
      }
      return out;
    }
    if (u.is(Op::kContiguous) || u.is(Op::kDetach)) return out;
    const int64_t begin = Is(u.op(), kMovement) ? PieceOffset(u) : -1;
    if (begin < 0) return {};
    out.offset += BytesOf(u.dtype(), begin);
    return out;
  }

  // Why `u` is no piece: what of it has to be computed.
  absl::Status Computes(UOp u, const NodeMap<SlotRange>& pieces) const {
    while (u.num_src() > 0 && pieces.at(u.src(0).id()).slot < 0) u = u.src(0);
    return Unimplemented(device_.name(), " runs no programs, but the graph has it compute ",
                         Name(u.op()), " of ", ToString(u.shape()),
                         "; copy to a device that computes, and the result back");
  }

  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override {
    TG_RETURN_IF_ERROR(CheckBindings(slots_, bindings));
    return queues.Submit(device_, QueueKind::kCopy,
                         {slices_,
                          BindAll(slots_, bindings),
                          {waits.begin(), waits.end()},
                          std::move(trace),
                          std::move(cancellation)});
  }

  Device& device_;
  const std::vector<SlotUse> slots_;
  RunCost cost_;
  std::shared_ptr<const std::vector<RunSlice>> slices_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Executable>> MakeCopyExecutable(const FrozenGraph& graph,
                                                                     Device& device) {
  auto out = std::make_shared<CopyExecutable>(&device, CollectSlotUses(graph.root()));
  TG_RETURN_IF_ERROR(out->Encode(graph.root()));
  return std::shared_ptr<const Executable>(std::move(out));
}

}  // namespace telegrad
