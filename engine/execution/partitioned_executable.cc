// A step waits for earlier ones only, and a run takes the buffers only of runs that were submitted
// to their end: so whatever a queue waits for was submitted before, and no two queues wait for each
// other, however the submissions of several threads mix. The end of a run is a point of a timeline
// of its own, which the last steps reach together.
//
// Nothing is submitted under a lock: a submission may run what others have submitted, on this
// thread, and their ends may submit a run of this same executable or drop the last session that has
// used it.
#include "engine/execution/partitioned_executable.h"

#include <algorithm>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/execution/bindings.h"

namespace telegrad {
namespace {

// Reaches its points when all that it waits for has ended: the first with the error that is first
// in the order of the steps, the second without.
class End {
 public:
  TimelinePoint ended() const { return {ended_, 1}; }
  TimelinePoint free() const { return {free_, 1}; }

  static void Await(const std::shared_ptr<End>& end, std::span<const TimelinePoint> points,
                    absl::Status status, std::shared_ptr<const PartitionedPlan::Buffers> buffers) {
    {
      const MutexLock lock(end->mutex_);
      end->status_ = std::move(status);
      end->first_ = points.size();
      end->buffers_ = std::move(buffers);
    }
    end->open_.store(points.size() + 1);
    for (size_t i = 0; i < points.size(); ++i) {
      const auto ended = [end, i](const absl::Status& s) { end->One(i, s); };
      points[i].timeline == nullptr ? ended(absl::OkStatus())
                                    : points[i].timeline->OnReached(points[i].value, ended);
    }
    end->One(points.size(), absl::OkStatus());
  }

 private:
  void One(size_t i, const absl::Status& status) {
    if (!status.ok()) {
      const MutexLock lock(mutex_);
      if (i < first_) {
        first_ = i;
        status_ = status;
      }
    }
    if (open_.fetch_sub(1) != 1) return;
    absl::Status first;
    std::shared_ptr<const PartitionedPlan::Buffers> buffers;
    {
      const MutexLock lock(mutex_);
      first = status_;
      buffers.swap(buffers_);
    }
    if (!first.ok()) buffers->spoiled = true;
    buffers = nullptr;
    free_->Signal(1);
    ended_->Signal(1, first);
  }

  const std::shared_ptr<Timeline> ended_ = std::make_shared<Timeline>();
  const std::shared_ptr<Timeline> free_ = std::make_shared<Timeline>();
  std::atomic<size_t> open_{0};
  Mutex mutex_;
  size_t first_ TG_GUARDED_BY(mutex_) = 0;
  absl::Status status_ TG_GUARDED_BY(mutex_);
  std::shared_ptr<const PartitionedPlan::Buffers> buffers_ TG_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> PartitionedExecutable::Create(
    std::shared_ptr<const PartitionedPlan> plan,
    std::vector<std::shared_ptr<const Executable>> parts, std::span<const VarValue> values) {
  std::shared_ptr<PartitionedExecutable> out(
      new PartitionedExecutable(std::move(plan), std::move(parts)));
  TG_RETURN_IF_ERROR(out->Bind(values));
  return std::shared_ptr<const PartitionedExecutable>(std::move(out));
}

absl::Status PartitionedExecutable::Bind(std::span<const VarValue> values) {
  const std::span<Device* const> devices = plan_->devices();
  std::vector<int64_t> temporaries(devices.size(), 0);
  std::vector<double> seconds(devices.size(), 0);
  const std::vector<PartitionStep>& steps = plan_->partition().steps;
  transfers_.resize(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const PartitionStep& step = steps[i];
    if (step.kind == PartitionStep::Kind::kTransfer) {
      TG_ASSIGN_OR_RETURN(transfers_[i], plan_->TransferFor(i, values));
      cost_.bytes += 2 * static_cast<double>(transfers_[i]->bytes);
      continue;
    }
    const RunCost part = parts_[i]->cost();
    cost_.flops += part.flops;
    cost_.bytes += part.bytes;
    cost_.launch_seconds = std::max(cost_.launch_seconds, part.launch_seconds);
    seconds[step.device] += part.seconds;
    temporaries[step.device] = std::max(temporaries[step.device], part.temporary_bytes);
  }
  kernels_ = plan_->KernelsOf(parts_);
  cost_.seconds = *std::ranges::max_element(seconds);
  for (const SlotUse& slot : plan_->slots()) {
    (slot.written ? cost_.output_bytes : cost_.input_bytes) += slot.bytes;
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    const int64_t room = devices[d]->memory_limit() - plan_->buffer_bytes(d);
    if (temporaries[d] > room) {
      return ResourceExhausted("the graph's temporaries and transfers need ", temporaries[d],
                               " and ", plan_->buffer_bytes(d), " bytes on ", devices[d]->name(),
                               ", over its limit of ", devices[d]->memory_limit());
    }
    const int64_t bytes = temporaries[d] + plan_->buffer_bytes(d);
    if (!CheckedAdd(cost_.temporary_bytes, bytes, &cost_.temporary_bytes)) {
      return ResourceExhausted(
          "the graph's temporaries and transfers need more bytes than 64 bits "
          "count");
    }
  }
  return absl::OkStatus();
}

std::vector<const Device*> PartitionedExecutable::value_devices() const {
  std::vector<const Device*> out;
  for (size_t d = 0; d < plan_->devices().size(); ++d) {
    if (plan_->buffer_bytes(d) > 0) out.push_back(plan_->devices()[d]);
  }
  return out;
}

int64_t PartitionedExecutable::kept_bytes() const {
  int64_t bytes = Executable::kept_bytes() + plan_->kept_bytes();
  for (const auto& part : parts_) {
    if (part != nullptr) bytes += part->kept_bytes();
  }
  return bytes;
}

absl::StatusOr<TimelinePoint> PartitionedExecutable::Submit(
    size_t i, std::span<const BufferView> bindings, const PartitionedPlan::Buffers& buffers,
    std::span<const TimelinePoint> waits, const std::shared_ptr<RunTrace>& trace,
    const std::shared_ptr<const Cancellation>& cancel, RunQueues& queues) const {
  if (transfers_[i] != nullptr) {
    return plan_->Send(i, *transfers_[i], bindings, buffers, waits, trace, cancel, queues);
  }
  std::vector<BufferView> views;
  for (const PartMemory slot : plan_->partition().steps[i].slots) {
    views.push_back(plan_->View(slot, buffers, bindings));
  }
  return parts_[i]->Submit(views, waits, trace, cancel, queues);
}

absl::StatusOr<TimelinePoint> PartitionedExecutable::Run(
    std::span<const BufferView> bindings, std::span<const TimelinePoint> waits,
    std::shared_ptr<RunTrace> trace, std::shared_ptr<const Cancellation> cancellation,
    RunQueues& queues) const {
  TG_RETURN_IF_ERROR(CheckBindings(plan_->slots(), bindings));
  TG_ASSIGN_OR_RETURN(PartitionedPlan::BufferSet set, plan_->TakeBuffers());
  const auto end = std::make_shared<End>();
  std::vector<TimelinePoint> before(waits.begin(), waits.end());
  if (set.free.timeline != nullptr) before.push_back(set.free);
  const std::vector<PartitionStep>& steps = plan_->partition().steps;
  std::vector<TimelinePoint> all, points, lasts;
  absl::Status status;
  for (size_t i = 0; i < steps.size(); ++i) {
    // What waits for another step waits, by way of that, for what the first steps wait for.
    all.clear();
    for (const int32_t w : steps[i].waits) all.push_back(points[w]);
    if (all.empty()) all = before;
    auto point = Submit(i, bindings, *set.buffers, all, trace, cancellation, queues);
    if (!point.ok()) {
      status = point.status();
      break;
    }
    points.push_back(*std::move(point));
  }
  if (points.empty() && !status.ok()) {
    plan_->PutBack(std::move(set));
    return status;
  }
  plan_->PutBack({set.buffers, end->free()});
  // If a run was submitted only in part, its end waits for all submitted steps.
  for (size_t i = 0; i < points.size(); ++i) {
    if (plan_->IsLast(i) || !status.ok()) lasts.push_back(points[i]);
  }
  End::Await(end, lasts, std::move(status), std::move(set.buffers));
  return end->ended();
}

}  // namespace telegrad
