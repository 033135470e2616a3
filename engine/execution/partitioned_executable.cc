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
#include <functional>
#include <iterator>
#include <utility>

#include "engine/base/status.h"
#include "engine/execution/bindings.h"
#include "engine/execution/charged_memory.h"

namespace telegrad {
namespace {

constexpr int64_t kAlignment = 64;

// Reaches its points when all that it waits for has ended: the first with the error that is first
// in the order of the steps, the second without.
class End {
 public:
  TimelinePoint ended() const { return {ended_, 1}; }
  TimelinePoint free() const { return {free_, 1}; }

  static void Await(const std::shared_ptr<End>& end, std::span<const TimelinePoint> points,
                    absl::Status status) {
    {
      const MutexLock lock(end->mutex_);
      end->status_ = std::move(status);
      end->first_ = points.size();
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
    {
      const MutexLock lock(mutex_);
      first = status_;
    }
    free_->Signal(1);
    ended_->Signal(1, first);
  }

  const std::shared_ptr<Timeline> ended_ = std::make_shared<Timeline>();
  const std::shared_ptr<Timeline> free_ = std::make_shared<Timeline>();
  std::atomic<size_t> open_{0};
  Mutex mutex_;
  size_t first_ TG_GUARDED_BY(mutex_) = 0;
  absl::Status status_ TG_GUARDED_BY(mutex_);
};

}  // namespace

PartitionedExecutable::PartitionedExecutable(Partition partition, std::vector<SlotUse> slots,
                                             std::vector<Device*> devices,
                                             std::vector<std::shared_ptr<const Executable>> parts,
                                             std::shared_ptr<RunCounters> counters,
                                             std::shared_ptr<Account> account)
    : partition_(std::move(partition)),
      slots_(std::move(slots)),
      devices_(std::move(devices)),
      parts_(std::move(parts)),
      transfers_(partition_.steps.size()),
      out_of_host_(partition_.steps.size()),
      last_(partition_.steps.size(), true),
      buffer_bytes_(devices_.size(), 0),
      sent_(devices_.size()),
      counters_(std::move(counters)),
      account_(std::move(account)) {}

absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> PartitionedExecutable::Create(
    Partition partition, std::vector<SlotUse> slots, std::vector<Device*> devices,
    std::vector<std::shared_ptr<const Executable>> parts, std::shared_ptr<RunCounters> counters,
    std::shared_ptr<Account> account) {
  std::shared_ptr<PartitionedExecutable> out(
      new PartitionedExecutable(std::move(partition), std::move(slots), std::move(devices),
                                std::move(parts), std::move(counters), std::move(account)));
  TG_RETURN_IF_ERROR(out->Encode());
  return std::shared_ptr<const PartitionedExecutable>(std::move(out));
}

absl::Status PartitionedExecutable::Encode() {
  for (const PartBuffer& buffer : partition_.buffers) {
    int64_t& end = buffer_bytes_[static_cast<size_t>(buffer.device)];
    offsets_.push_back(end);
    end += (buffer.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::vector<int64_t> temporaries(devices_.size(), 0);
  std::vector<double> seconds(devices_.size(), 0);
  for (size_t i = 0; i < partition_.steps.size(); ++i) {
    const PartitionStep& step = partition_.steps[i];
    for (const int32_t w : step.waits) last_[static_cast<size_t>(w)] = false;
    if (step.kind == PartitionStep::Kind::kTransfer) {
      Device& device = CopyDevice(*devices_[step.to_device], *devices_[step.device]);
      std::vector<PredictedCommand> commands;
      const bool through_host = NeedsHost(*devices_[step.to_device], *devices_[step.device]);
      const Device* const other =
          devices_[&device == devices_[step.device] ? step.to_device : step.device];
      AddCopy({.to = {0, 0}, .from = {1, step.from_offset}, .length = step.bytes}, device,
              &commands, through_host ? nullptr : other);
      TG_ASSIGN_OR_RETURN(transfers_[i], EncodeSlices(device, std::move(commands)));
      if (through_host) {
        Device& to = *devices_[step.to_device];
        std::vector<PredictedCommand> second;
        AddCopy({.to = {0, 0}, .from = {1, 0}, .length = step.bytes}, to, &second);
        TG_ASSIGN_OR_RETURN(out_of_host_[i], EncodeSlices(to, std::move(second)));
      }
      cost_.bytes += 2 * static_cast<double>(step.bytes);
      continue;
    }
    const RunCost part = parts_[i]->cost();
    cost_.flops += part.flops;
    cost_.bytes += part.bytes;
    cost_.launch_seconds = std::max(cost_.launch_seconds, part.launch_seconds);
    seconds[step.device] += part.seconds;
    temporaries[step.device] = std::max(temporaries[step.device], part.temporary_bytes);
    const std::span<const KernelInfo> kernels = parts_[i]->kernels();
    kernels_.insert(kernels_.end(), kernels.begin(), kernels.end());
  }
  cost_.seconds = *std::ranges::max_element(seconds);
  for (const SlotUse& slot : slots_) {
    (slot.written ? cost_.output_bytes : cost_.input_bytes) += slot.bytes;
  }
  for (size_t d = 0; d < devices_.size(); ++d) {
    cost_.temporary_bytes += temporaries[d] + buffer_bytes_[d];
    if (temporaries[d] + buffer_bytes_[d] > devices_[d]->memory_limit()) {
      return ResourceExhausted("the graph's temporaries and transfers need ",
                               temporaries[d] + buffer_bytes_[d], " bytes on ", devices_[d]->name(),
                               ", over its limit of ", devices_[d]->memory_limit());
    }
  }
  return absl::OkStatus();
}

std::vector<int64_t> PartitionedExecutable::BytesSent() const {
  std::vector<int64_t> out;
  for (const std::atomic<int64_t>& bytes : sent_) out.push_back(bytes.load());
  return out;
}

std::vector<const Device*> PartitionedExecutable::value_devices() const {
  std::vector<const Device*> out;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (buffer_bytes_[d] > 0) out.push_back(devices_[d]);
  }
  return out;
}

int64_t PartitionedExecutable::kept_bytes() const {
  int64_t bytes = Executable::kept_bytes();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const PartitionStep& step = partition_.steps[i];
    bytes += static_cast<int64_t>(sizeof(step) + sizeof(Command) +
                                  step.waits.size() * sizeof(step.waits[0]) +
                                  step.slots.size() * sizeof(PartMemory));
    if (step.graph.graph != nullptr) bytes += step.graph.graph->bytes();
    if (parts_[i] != nullptr) bytes += parts_[i]->kept_bytes();
  }
  return bytes;
}

// Submissions hold the memory of runs in flight.
void PartitionedExecutable::ReleaseMemory() const {
  std::vector<BufferSet> released;  // goes without the lock
  const MutexLock lock(mutex_);
  released.swap(buffers_);
}

// A free set of buffers, a new one, or the one that becomes free first. While others submit runs
// with all of them, there may be more sets than are kept.
absl::StatusOr<PartitionedExecutable::BufferSet> PartitionedExecutable::TakeBuffers() const {
  const auto is_free = [](const BufferSet& set) {
    return set.free.timeline == nullptr || set.free.timeline->value() >= set.free.value;
  };
  // What was on a device that was lost is of no use any more.
  const auto is_lost = [](const BufferSet& set) {
    return std::ranges::any_of(set.buffers->memories, [](const std::shared_ptr<Memory>& memory) {
      return memory != nullptr && !memory->Health().ok();
    });
  };
  std::vector<BufferSet> lost;  // goes without the lock
  {
    const MutexLock lock(mutex_);
    const auto rest = std::ranges::stable_partition(buffers_, std::not_fn(is_lost));
    std::ranges::move(rest, std::back_inserter(lost));
    buffers_.erase(rest.begin(), rest.end());
    auto found = std::ranges::find_if(buffers_, is_free);
    if (found == buffers_.end() && buffers_.size() == kBufferSets) found = buffers_.begin();
    if (found != buffers_.end()) {
      BufferSet taken = std::move(*found);
      buffers_.erase(found);
      return taken;
    }
  }
  TG_ASSIGN_OR_RETURN(auto buffers, AllocBuffers());
  return BufferSet{std::move(buffers), {}};
}

absl::StatusOr<std::shared_ptr<const PartitionedExecutable::Buffers>>
PartitionedExecutable::AllocBuffers() const {
  auto made = std::make_shared<Buffers>();
  for (size_t d = 0; d < devices_.size(); ++d) {
    std::shared_ptr<Memory>& memory = made->memories.emplace_back();
    if (buffer_bytes_[d] > 0) {
      TG_ASSIGN_OR_RETURN(memory, AllocCharged(*devices_[d], buffer_bytes_[d], account_));
    }
  }
  made->host.resize(partition_.steps.size());
  for (size_t i = 0; i < partition_.steps.size(); ++i) {
    if (out_of_host_[i] == nullptr) continue;
    TG_ASSIGN_OR_RETURN(made->host[i], AllocHostCharged(*devices_[partition_.steps[i].to_device],
                                                        *devices_[partition_.steps[i].device],
                                                        partition_.steps[i].bytes, account_));
  }
  return made;
}

// For the next run, unless enough of them are kept.
void PartitionedExecutable::PutBack(BufferSet set) const {
  const MutexLock lock(mutex_);
  if (buffers_.size() < kBufferSets) buffers_.push_back(std::move(set));
}

BufferView PartitionedExecutable::View(PartMemory memory, const Buffers& buffers,
                                       std::span<const BufferView> bindings) const {
  const auto index = static_cast<size_t>(memory.index);
  if (memory.kind == PartMemory::Kind::kSlot) return bindings[index];
  const PartBuffer& buffer = partition_.buffers[index];
  return {buffers.memories[static_cast<size_t>(buffer.device)], offsets_[index], buffer.bytes};
}

absl::StatusOr<TimelinePoint> PartitionedExecutable::Submit(
    size_t i, std::span<const BufferView> bindings, const Buffers& buffers,
    std::span<const TimelinePoint> waits, const std::shared_ptr<RunTrace>& trace,
    const std::shared_ptr<const Cancellation>& cancel, RunQueues& queues) const {
  const PartitionStep& step = partition_.steps[i];
  std::vector<BufferView> views;
  if (step.kind == PartitionStep::Kind::kPart) {
    for (const PartMemory slot : step.slots) views.push_back(View(slot, buffers, bindings));
    return parts_[i]->Submit(views, waits, trace, cancel, queues);
  }
  TG_ASSIGN_OR_RETURN(
      TimelinePoint point,
      Transfer(i, View({PartMemory::Kind::kBuffer, step.to}, buffers, bindings),
               View(step.from, buffers, bindings), buffers, waits, trace, cancel, queues));
  sent_[static_cast<size_t>(step.device)].fetch_add(step.bytes, std::memory_order_relaxed);
  counters_->bytes_sent.fetch_add(step.bytes, std::memory_order_relaxed);
  return point;
}

absl::StatusOr<TimelinePoint> PartitionedExecutable::Transfer(
    size_t i, BufferView to, BufferView from, const Buffers& buffers,
    std::span<const TimelinePoint> waits, const std::shared_ptr<RunTrace>& trace,
    const std::shared_ptr<const Cancellation>& cancel, RunQueues& queues) const {
  const PartitionStep& step = partition_.steps[i];
  Device& to_device = *devices_[step.to_device];
  Device& from_device = *devices_[step.device];
  const auto submit = [&](Device& on, QueueKind kind, const auto& slices, BufferView target,
                          BufferView source, std::vector<TimelinePoint> after) {
    return queues.Submit(
        on, kind,
        {slices, {std::move(target), std::move(source)}, std::move(after), trace, cancel});
  };
  std::vector<TimelinePoint> before(waits.begin(), waits.end());
  Device& device = CopyDevice(to_device, from_device);
  const QueueKind kind = CopyKind(device, to_device, from_device);
  if (out_of_host_[i] == nullptr) {
    return submit(device, kind, transfers_[i], std::move(to), std::move(from), std::move(before));
  }
  const BufferView host{buffers.host[i], 0, step.bytes};
  TG_ASSIGN_OR_RETURN(TimelinePoint half, submit(device, kind, transfers_[i], host, std::move(from),
                                                 std::move(before)));
  return submit(to_device, QueueKind::kCopy, out_of_host_[i], std::move(to), host,
                {std::move(half)});
}

absl::StatusOr<TimelinePoint> PartitionedExecutable::Run(
    std::span<const BufferView> bindings, std::span<const TimelinePoint> waits,
    std::shared_ptr<RunTrace> trace, std::shared_ptr<const Cancellation> cancellation,
    RunQueues& queues) const {
  TG_RETURN_IF_ERROR(CheckBindings(slots_, bindings));
  TG_ASSIGN_OR_RETURN(BufferSet set, TakeBuffers());
  const auto end = std::make_shared<End>();
  std::vector<TimelinePoint> before(waits.begin(), waits.end());
  if (set.free.timeline != nullptr) before.push_back(set.free);
  std::vector<TimelinePoint> all, points, lasts;
  absl::Status status;
  for (size_t i = 0; i < partition_.steps.size(); ++i) {
    // What waits for another step waits, by way of that, for what the first steps wait for.
    all.clear();
    for (const int32_t w : partition_.steps[i].waits) all.push_back(points[w]);
    if (all.empty()) all = before;
    auto point = Submit(i, bindings, *set.buffers, all, trace, cancellation, queues);
    if (!point.ok()) {
      status = point.status();
      break;
    }
    points.push_back(*std::move(point));
  }
  if (points.empty() && !status.ok()) {
    PutBack(std::move(set));
    return status;
  }
  PutBack({std::move(set.buffers), end->free()});
  // If a run was submitted only in part, its end waits for all submitted steps.
  for (size_t i = 0; i < points.size(); ++i) {
    if (last_[i] || !status.ok()) lasts.push_back(points[i]);
  }
  End::Await(end, lasts, std::move(status));
  return end->ended();
}

}  // namespace telegrad
