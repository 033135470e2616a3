#include "engine/execution/graph_executable.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "devices/api/predicts_values.h"
#include "engine/base/status.h"
#include "engine/execution/bindings.h"
#include "engine/execution/forms.h"
#include "engine/execution/slot_uses.h"
#include "engine/execution/whole_form.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

// Forms of a graph whose costs are kept: more than a server makes of one, see forms.h.
constexpr size_t kMostForms = 64;

class GraphExecutable final : public Executable {
 public:
  GraphExecutable(Device* device, std::shared_ptr<const GraphOnDevice> graph,
                  std::span<const VarValue> variables, const RunCost& cost)
      : device_(*device), graph_(std::move(graph)), cost_(cost) {
    for (const VarValue& v : variables) scalars_.push_back(static_cast<uint64_t>(v.value));
  }

  absl::Status Encode(std::span<const VarValue> variables) {
    std::vector<int64_t> ids;
    for (const VarValue& v : variables) ids.push_back(v.id);
    const MutexLock lock(graph_->mutex);
    if (graph_->run == nullptr || graph_->variables != ids) {
      TG_ASSIGN_OR_RETURN(graph_->run,
                          EncodeSlices(device_, {{CommandFor(ids), graph_->cost.seconds}}));
      graph_->variables = std::move(ids);
    }
    slices_ = graph_->run;
    if (cost_.seconds == graph_->cost.seconds) return absl::OkStatus();
    auto predicted = std::make_shared<std::vector<RunSlice>>(*slices_);  // the one that it is
    for (RunSlice& slice : *predicted) slice.seconds = cost_.seconds;
    slices_ = std::move(predicted);
    return absl::OkStatus();
  }

  std::span<const SlotUse> slots() const override { return graph_->slots; }
  std::span<const KernelInfo> kernels() const override { return graph_->kernels; }
  RunCost cost() const override { return cost_; }
  int64_t kept_bytes() const override { return Executable::kept_bytes() + graph_->bytes; }

 private:
  Command CommandFor(const std::vector<int64_t>& variables) const {
    Command command;
    Launch& launch = command.launch;
    launch.name = graph_->name;
    launch.program = graph_->program;
    launch.flops = graph_->cost.flops;
    launch.bytes = graph_->cost.bytes;
    launch.variables = variables;
    for (size_t i = 0; i < graph_->slots.size(); ++i) {
      const bool written = graph_->slots[i].written;
      launch.arguments.push_back(
          {static_cast<int32_t>(i), 0, written ? BufferAccess::kReadWrite : BufferAccess::kRead});
    }
    for (size_t i = 0; i < variables.size(); ++i) {
      launch.arguments.push_back(LaunchArgument::Scalar64At(static_cast<int32_t>(i)));
    }
    return command;
  }

  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override {
    TG_RETURN_IF_ERROR(CheckBindings(graph_->slots, bindings));
    return queues.Submit(device_, QueueKind::kCompute,
                         {slices_,
                          BindAll(graph_->slots, bindings),
                          {waits.begin(), waits.end()},
                          std::move(trace),
                          std::move(cancellation),
                          scalars_});
  }

  Device& device_;
  const std::shared_ptr<const GraphOnDevice> graph_;
  const RunCost cost_;
  std::vector<uint64_t> scalars_;  // the values of the variables
  std::shared_ptr<const std::vector<RunSlice>> slices_;
};

RunCost CostOf(const GraphCost& cost) {
  return {.temporary_bytes = cost.temporary_bytes,
          .flops = cost.flops,
          .bytes = cost.bytes,
          .seconds = cost.seconds,
          .launch_seconds = cost.launch_seconds};
}

// With these values, which are by id; nullopt: the form is for others.
std::optional<RunCost> CostFor(const FormCost<RunCost>& form, std::span<const VarValue> values) {
  std::vector<VarRange> ranges;
  for (const VarBounds& b : form.bounds) ranges.push_back({b.id, b.min, b.max, b.multiple});
  if (!Holds(ranges, values)) return std::nullopt;
  return Scaled(form.greatest, ShareOfWork(form.least_share, PartOf(ranges, values)));
}

// What is known of it; nullopt: the device has to be asked.
std::optional<RunCost> KnownCost(const GraphOnDevice& graph, std::span<const VarValue> values) {
  const MutexLock lock(graph.mutex);
  if (values.empty() || !graph.predicted) return graph.cost;
  for (const FormCost<RunCost>& form : graph.forms) {
    if (auto cost = CostFor(form, values)) return cost;
  }
  return std::nullopt;
}

absl::StatusOr<RunCost> AskedCost(const GraphOnDevice& graph, std::span<const VarValue> values) {
  const auto* predicts = dynamic_cast<const PredictsValues*>(graph.program.get());
  std::optional<FormCost<GraphCost>> told;
  if (predicts != nullptr) {
    TG_ASSIGN_OR_RETURN(told, predicts->Predict(values));
  }
  const MutexLock lock(graph.mutex);
  if (!told) {
    graph.predicted = false;
    return graph.cost;
  }
  FormCost<RunCost> form{std::move(told->bounds), CostOf(told->greatest), told->least_share};
  form.greatest.input_bytes = graph.cost.input_bytes;
  form.greatest.output_bytes = graph.cost.output_bytes;
  const std::optional<RunCost> cost = CostFor(form, values);
  if (!cost) {
    return Internal(
        "a device that was asked what a run takes has told it of other values of its "
        "variables");
  }
  graph.forms.insert(graph.forms.begin(), std::move(form));
  if (graph.forms.size() > kMostForms) graph.forms.pop_back();
  return *cost;
}

// What a run takes, and the report of it.
void Describe(GraphOnDevice* graph) {
  const GraphCost cost = graph->program->cost();
  graph->cost = CostOf(cost);
  KernelInfo kernel;
  kernel.name = graph->name;
  kernel.reasons = {"a graph that its device schedules"};
  kernel.flops = cost.flops;
  kernel.bytes = cost.bytes;
  kernel.seconds = cost.seconds;
  for (size_t i = 0; i < graph->slots.size(); ++i) {
    const SlotUse& slot = graph->slots[i];
    if (!slot.used) continue;
    kernel.arguments.push_back({.slot = static_cast<int32_t>(i),
                                .bytes = slot.bytes,
                                .read = slot.read,
                                .written = slot.written});
    (slot.written ? graph->cost.output_bytes : graph->cost.input_bytes) += slot.bytes;
  }
  graph->kernels.push_back(std::move(kernel));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const GraphOnDevice>> LoadGraph(const Digest& hash,
                                                               const FrozenGraph& graph,
                                                               Device& device) {
  auto out = std::make_shared<GraphOnDevice>();
  out->name = StrCat("graph_", hash.Hex().substr(0, 16));
  out->slots = CollectSlotUses(graph.root());
  ProgramImage image{
      .name = out->name, .binary = GraphBytes(graph.root()), .hash = std::string(hash.view())};
  out->bytes = static_cast<int64_t>(image.binary.size());
  TG_ASSIGN_OR_RETURN(out->program, device.Load(image));
  Describe(out.get());
  return std::shared_ptr<const GraphOnDevice>(std::move(out));
}

absl::StatusOr<std::shared_ptr<const Executable>> MakeGraphExecutable(
    std::shared_ptr<const GraphOnDevice> graph, std::span<const VarValue> variables, Device& device,
    bool may_wait) {
  std::optional<RunCost> cost = KnownCost(*graph, variables);
  if (!cost && !may_wait) return std::shared_ptr<const Executable>();
  if (!cost) {
    TG_ASSIGN_OR_RETURN(cost, AskedCost(*graph, variables));
  }
  auto out = std::make_shared<GraphExecutable>(&device, std::move(graph), variables, *cost);
  TG_RETURN_IF_ERROR(out->Encode(variables));
  return std::shared_ptr<const Executable>(std::move(out));
}

}  // namespace telegrad
