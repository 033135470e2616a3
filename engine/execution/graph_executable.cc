#include "engine/execution/graph_executable.h"

#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/execution/bindings.h"
#include "engine/execution/slot_uses.h"
#include "engine/ir/content_hash.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

class GraphExecutable final : public Executable {
 public:
  GraphExecutable(Device* device, std::vector<SlotUse> slots, std::string name)
      : device_(*device), slots_(std::move(slots)) {
    KernelInfo kernel;
    kernel.name = std::move(name);
    kernel.reasons = {"a graph that its device schedules"};
    for (size_t i = 0; i < slots_.size(); ++i) {
      const SlotUse& slot = slots_[i];
      if (!slot.used) continue;
      kernel.arguments.push_back({.slot = static_cast<int32_t>(i),
                                  .bytes = slot.bytes,
                                  .read = slot.read,
                                  .written = slot.written});
      (slot.written ? cost_.output_bytes : cost_.input_bytes) += slot.bytes;
    }
    kernels_.push_back(std::move(kernel));
  }

  absl::Status Load(const FrozenGraph& graph) {
    Command command;
    command.launch.name = kernels_[0].name;
    std::string bytes = GraphBytes(graph.root());
    graph_bytes_ = static_cast<int64_t>(bytes.size());
    TG_ASSIGN_OR_RETURN(command.launch.program, device_.Load({kernels_[0].name, std::move(bytes)}));
    for (size_t i = 0; i < slots_.size(); ++i) {
      command.launch.arguments.push_back({static_cast<int32_t>(i), 0});
    }
    // What it takes, only the device's own side could tell.
    TG_ASSIGN_OR_RETURN(slices_, EncodeSlices(device_, {{std::move(command), 0}}));
    return absl::OkStatus();
  }

  std::span<const SlotUse> slots() const override { return slots_; }
  std::span<const KernelInfo> kernels() const override { return kernels_; }
  RunCost cost() const override { return cost_; }
  int64_t kept_bytes() const override { return Executable::kept_bytes() + graph_bytes_; }

 private:
  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override {
    TG_RETURN_IF_ERROR(CheckBindings(slots_, bindings));
    return queues.Submit(device_, QueueKind::kCompute,
                         {slices_,
                          BindAll(slots_, bindings),
                          {waits.begin(), waits.end()},
                          std::move(trace),
                          std::move(cancellation)});
  }

  Device& device_;
  const std::vector<SlotUse> slots_;
  std::vector<KernelInfo> kernels_;  // one
  RunCost cost_;
  int64_t graph_bytes_ = 0;
  std::shared_ptr<const std::vector<RunSlice>> slices_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Executable>> MakeGraphExecutable(const FrozenGraph& graph,
                                                                      Device& device) {
  auto out = std::make_shared<GraphExecutable>(
      &device, CollectSlotUses(graph.root()),
      StrCat("graph_", ContentHash(graph.root()).Hex().substr(0, 16)));
  TG_RETURN_IF_ERROR(out->Load(graph));
  return std::shared_ptr<const Executable>(std::move(out));
}

}  // namespace telegrad
