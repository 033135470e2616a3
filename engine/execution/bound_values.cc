#include "engine/execution/bound_values.h"

#include <vector>

#include "engine/base/status.h"
#include "engine/execution/bindings.h"
#include "engine/execution/charged_memory.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<const Executable>> BoundValues::Create(
    std::shared_ptr<const PlannedExecutable> general, std::span<const VarValue> values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(int64_t));
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory,
                      AllocCharged(general->runs()->device, bytes, general->runs()->account));
  auto* const out = static_cast<int64_t*>(memory->host());
  if (out == nullptr) return Unimplemented("the host cannot write the variables of this device");
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i].value;
  return std::shared_ptr<const Executable>(
      new BoundValues(std::move(general), {std::move(memory), 0, bytes}));
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
  return general_->Submit(all, waits, std::move(trace), std::move(cancellation), queues);
}

}  // namespace telegrad
