#include "engine/execution/bound_values.h"

#include <vector>

#include "devices/api/host_memory.h"
#include "engine/base/status.h"
#include "engine/execution/bindings.h"
#include "engine/execution/charged_memory.h"
#include "engine/execution/whole_form.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<const Executable>> BoundValues::Create(
    std::shared_ptr<const PlannedExecutable> general, std::vector<VarRange> ranges,
    std::span<const VarValue> values, double least_share) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(int64_t));
  Device& device = general->runs()->device;
  const std::shared_ptr<Account>& account = general->runs()->account;
  TG_ASSIGN_OR_RETURN(const std::shared_ptr<Memory> memory, AllocCharged(device, bytes, account));
  const BufferView view{memory, 0, bytes};
  BufferView staged;
  Slices copy;
  if (memory->host() == nullptr) {
    // Not pinned, which drivers take long for: they copy a few bytes at once.
    TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> host, AllocHostMemory(bytes));
    staged = {std::move(host), 0, bytes};
    std::vector<PredictedCommand> commands;
    AddCopy({.to = {0, 0}, .from = {1, 0}, .length = bytes}, device, &commands);
    TG_ASSIGN_OR_RETURN(copy, EncodeSlices(device, std::move(commands)));
  }
  auto* const out = static_cast<int64_t*>((copy != nullptr ? staged : view).memory->host());
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i].value;
  std::vector<uint64_t> scalars = general->ScalarsFor(values);
  const double share = ShareOfWork(least_share, PartOf(ranges, values));
  return std::shared_ptr<const Executable>(
      new BoundValues(std::move(general), std::move(ranges), view, least_share, share,
                      std::move(scalars), std::move(staged), std::move(copy)));
}

RunCost BoundValues::cost() const { return Scaled(general_->cost(), share_); }

FormCost<RunCost> BoundValues::form_cost() const {
  FormCost<RunCost> out{.bounds = {}, .greatest = general_->cost(), .least_share = least_share_};
  for (const VarRange& r : ranges_) out.bounds.push_back({r.id, r.min, r.max, r.multiple});
  return out;
}

FormCost<RunCost> FormCostOf(const Executable& executable, std::span<const VarValue> values) {
  if (const auto* bound = dynamic_cast<const BoundValues*>(&executable); bound != nullptr) {
    return bound->form_cost();
  }
  FormCost<RunCost> out{.bounds = {}, .greatest = executable.cost()};
  for (const VarValue& v : values) out.bounds.push_back({v.id, v.value, v.value, 1});
  return out;
}

absl::StatusOr<TimelinePoint> BoundValues::Run(std::span<const BufferView> bindings,
                                               std::span<const TimelinePoint> waits,
                                               std::shared_ptr<RunTrace> trace,
                                               std::shared_ptr<const Cancellation> cancellation,
                                               RunQueues& queues) const {
  const size_t slots = this->slots().size();
  if (bindings.size() < slots) return CheckBindings(this->slots(), bindings);
  std::vector<BufferView> all(bindings.begin(), bindings.begin() + static_cast<ptrdiff_t>(slots));
  all.push_back(values_);
  if (copy_ == nullptr) {
    return general_->SubmitPart(scalars_, all, waits, std::move(trace), std::move(cancellation),
                                queues);
  }
  Device& device = general_->runs()->device;
  // Behind it on the same queue, where that takes both.
  const QueueKind kind =
      device.queue(QueueKind::kCompute).takes().copy ? QueueKind::kCompute : QueueKind::kCopy;
  TG_ASSIGN_OR_RETURN(
      TimelinePoint copied,
      queues.Submit(device, kind, {.slices = copy_, .bindings = {values_, staged_}}));
  std::vector<TimelinePoint> after(waits.begin(), waits.end());
  after.push_back(std::move(copied));
  return general_->SubmitPart(scalars_, all, after, std::move(trace), std::move(cancellation),
                              queues);
}

}  // namespace telegrad
