#include "engine/execution/partitioned_plan.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/execution/charged_memory.h"

namespace telegrad {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLeastSent = 64;

}  // namespace

int64_t BytesToSend(int64_t bytes, int64_t most) {
  const auto needed = static_cast<uint64_t>(std::max(bytes, kLeastSent));
  const uint64_t unit = std::bit_floor(needed) / 8;
  return std::min(static_cast<int64_t>((needed + unit - 1) / unit * unit), most);
}

PartitionedPlan::PartitionedPlan(Partition partition, std::vector<SlotUse> slots,
                                 std::vector<Device*> devices, std::string reason,
                                 std::shared_ptr<RunCounters> counters,
                                 std::shared_ptr<Account> account)
    : partition_(std::move(partition)),
      slots_(std::move(slots)),
      devices_(std::move(devices)),
      reason_(std::move(reason)),
      last_(partition_.steps.size(), true),
      through_host_(partition_.steps.size(), false),
      buffer_bytes_(devices_.size(), 0),
      transfers_(partition_.steps.size()),
      sent_(devices_.size()),
      counters_(std::move(counters)),
      account_(std::move(account)) {}

absl::StatusOr<std::shared_ptr<const PartitionedPlan>> PartitionedPlan::Create(
    Partition partition, std::vector<SlotUse> slots, std::vector<Device*> devices,
    std::string reason, std::shared_ptr<RunCounters> counters, std::shared_ptr<Account> account) {
  std::shared_ptr<PartitionedPlan> out(
      new PartitionedPlan(std::move(partition), std::move(slots), std::move(devices),
                          std::move(reason), std::move(counters), std::move(account)));
  TG_RETURN_IF_ERROR(out->Place());
  return std::shared_ptr<const PartitionedPlan>(std::move(out));
}

absl::Status PartitionedPlan::Place() {
  for (const PartBuffer& buffer : partition_.buffers) {
    int64_t& end = buffer_bytes_[static_cast<size_t>(buffer.device)];
    offsets_.push_back(end);
    int64_t last;
    if (!CheckedAdd(end, buffer.bytes, &last) || !CheckedAdd(last, kAlignment - 1, &last)) {
      return ResourceExhausted("the graph's temporaries and transfers need more bytes on ",
                               devices_[static_cast<size_t>(buffer.device)]->name(),
                               " than 64 bits count");
    }
    end = last / kAlignment * kAlignment;
  }
  for (size_t i = 0; i < partition_.steps.size(); ++i) {
    const PartitionStep& step = partition_.steps[i];
    for (const int32_t w : step.waits) last_[static_cast<size_t>(w)] = false;
    if (step.kind == PartitionStep::Kind::kTransfer) {
      through_host_[i] = NeedsHost(*devices_[step.to_device], *devices_[step.device]);
    }
  }
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (buffer_bytes_[d] > devices_[d]->memory_limit()) {
      return ResourceExhausted("the graph's temporaries and transfers need ", buffer_bytes_[d],
                               " bytes on ", devices_[d]->name(), ", over its limit of ",
                               devices_[d]->memory_limit());
    }
  }
  return absl::OkStatus();
}

// --- transfers ---

absl::StatusOr<std::shared_ptr<const PartitionedPlan::Transfer>> PartitionedPlan::Encode(
    size_t i, int64_t bytes) const {
  const PartitionStep& step = partition_.steps[i];
  Device &to = *devices_[step.to_device], &from = *devices_[step.device];
  Device& device = CopyDevice(to, from);
  const Device* const other = &device == &from ? &to : &from;
  auto out = std::make_shared<Transfer>();
  out->bytes = bytes;
  std::vector<PredictedCommand> commands;
  AddCopy({.to = {0, 0}, .from = {1, step.from_offset}, .length = bytes}, device, &commands,
          through_host_[i] ? nullptr : other);
  TG_ASSIGN_OR_RETURN(out->copy, EncodeSlices(device, std::move(commands)));
  if (through_host_[i]) {
    std::vector<PredictedCommand> second;
    AddCopy({.to = {0, 0}, .from = {1, 0}, .length = bytes}, to, &second);
    TG_ASSIGN_OR_RETURN(out->out_of_host, EncodeSlices(to, std::move(second)));
  }
  return std::shared_ptr<const Transfer>(std::move(out));
}

absl::StatusOr<std::shared_ptr<const PartitionedPlan::Transfer>> PartitionedPlan::TransferFor(
    size_t i, std::span<const VarValue> values) const {
  const PartitionStep& step = partition_.steps[i];
  const int64_t bytes = step.rows ? BytesToSend(BytesNeeded(step, values), step.bytes) : step.bytes;
  {
    const MutexLock lock(mutex_);
    const auto& known = transfers_[i];
    const auto it = std::ranges::find(known, bytes, &Transfer::bytes);
    if (it != known.end()) return *it;
  }
  TG_ASSIGN_OR_RETURN(auto made, Encode(i, bytes));
  std::shared_ptr<const Transfer> dropped;  // goes without the lock
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const Transfer>>& known = transfers_[i];
  const auto it = std::ranges::find(known, bytes, &Transfer::bytes);
  if (it != known.end()) return *it;
  known.push_back(made);
  if (known.size() > kLengths) {
    dropped = std::move(known.front());
    known.erase(known.begin());
  }
  return made;
}

absl::StatusOr<TimelinePoint> PartitionedPlan::Send(
    size_t i, const Transfer& transfer, std::span<const BufferView> bindings,
    const Buffers& buffers, std::span<const TimelinePoint> waits,
    const std::shared_ptr<RunTrace>& trace, const std::shared_ptr<const Cancellation>& cancel,
    RunQueues& queues) const {
  const PartitionStep& step = partition_.steps[i];
  Device& to_device = *devices_[step.to_device];
  Device& from_device = *devices_[step.device];
  BufferView to = View({PartMemory::Kind::kBuffer, step.to}, buffers, bindings);
  BufferView from = View(step.from, buffers, bindings);
  const auto submit = [&](Device& on, QueueKind kind, const auto& slices, BufferView target,
                          BufferView source, std::vector<TimelinePoint> after) {
    return queues.Submit(
        on, kind,
        {slices, {std::move(target), std::move(source)}, std::move(after), trace, cancel});
  };
  std::vector<TimelinePoint> before(waits.begin(), waits.end());
  Device& device = CopyDevice(to_device, from_device);
  const QueueKind kind = CopyKind(device, to_device, from_device);
  absl::StatusOr<TimelinePoint> point;
  if (transfer.out_of_host == nullptr) {
    point = submit(device, kind, transfer.copy, std::move(to), std::move(from), std::move(before));
  } else {
    const BufferView host{buffers.host[i], 0, step.bytes};
    TG_ASSIGN_OR_RETURN(TimelinePoint half, submit(device, kind, transfer.copy, host,
                                                   std::move(from), std::move(before)));
    point = submit(to_device, QueueKind::kCopy, transfer.out_of_host, std::move(to), host,
                   {std::move(half)});
  }
  if (!point.ok()) return point.status();
  sent_[static_cast<size_t>(step.device)].fetch_add(transfer.bytes, std::memory_order_relaxed);
  counters_->bytes_sent.fetch_add(transfer.bytes, std::memory_order_relaxed);
  return point;
}

std::vector<int64_t> PartitionedPlan::BytesSent() const {
  std::vector<int64_t> out;
  for (const std::atomic<int64_t>& bytes : sent_) out.push_back(bytes.load());
  return out;
}

// --- reports ---

// Parts for other values of the variables mostly have the kernels of those before them: those of a
// general form. They are compared by where they are, and the parts are kept as long as that counts.
std::shared_ptr<const PartitionedPlan::Kernels> PartitionedPlan::KernelsOf(
    std::span<const std::shared_ptr<const Executable>> parts) const {
  const auto same = [](const auto& a, const auto& b) {
    if (a == nullptr || b == nullptr) return a == b;
    return a->kernels().data() == b->kernels().data() && a->kernels().size() == b->kernels().size();
  };
  std::shared_ptr<const Kernels> known;
  {
    const MutexLock lock(mutex_);
    known = kernels_;
  }
  if (known != nullptr && std::ranges::equal(known->parts, parts, same)) return known;
  auto made = std::make_shared<Kernels>();
  made->parts.assign(parts.begin(), parts.end());
  for (const auto& part : parts) {
    if (part == nullptr) continue;
    const std::span<const KernelInfo> infos = part->kernels();
    made->infos.insert(made->infos.end(), infos.begin(), infos.end());
  }
  if (!reason_.empty() && !made->infos.empty()) made->infos[0].reasons.push_back(reason_);
  known = made;  // what was there before goes without the lock
  {
    const MutexLock lock(mutex_);
    known.swap(kernels_);
  }
  return made;
}

int64_t PartitionedPlan::kept_bytes() const {
  int64_t bytes = 0;
  for (const PartitionStep& step : partition_.steps) {
    bytes += static_cast<int64_t>(sizeof(step) + (step.rows ? kLengths : 1) * sizeof(Command) +
                                  step.waits.size() * sizeof(step.waits[0]) +
                                  step.slots.size() * sizeof(PartMemory));
    if (step.graph.graph != nullptr) bytes += step.graph.graph->bytes();
    if (step.rows) bytes += step.rows->graph->bytes();
  }
  return bytes;
}

// --- memory ---

// Submissions hold the memory of runs in flight.
void PartitionedPlan::ReleaseMemory() const {
  std::vector<BufferSet> released;  // goes without the lock
  const MutexLock lock(mutex_);
  released.swap(buffers_);
}

absl::Status PartitionedPlan::Reserve() const {
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (buffer_bytes_[d] > 0 && devices_[d]->accepts() == ProgramLevel::kNothing) {
      return absl::OkStatus();
    }
  }
  {
    const MutexLock lock(mutex_);
    if (!buffers_.empty() || taken_ > 0) return absl::OkStatus();
  }
  TG_ASSIGN_OR_RETURN(auto buffers, AllocBuffers());
  BufferSet set{std::move(buffers), {}};
  const MutexLock lock(mutex_);
  if (buffers_.size() < kBufferSets) buffers_.push_back(std::move(set));
  return absl::OkStatus();
}

std::optional<PartitionedPlan::BufferSet> PartitionedPlan::TakeFree(bool busy) const {
  const auto is_free = [](const BufferSet& set) {
    return set.free.timeline == nullptr || set.free.timeline->value() >= set.free.value;
  };
  // What was on a device that was lost, or used by a run that failed, is of no use any more.
  const auto is_lost = [](const BufferSet& set) {
    return set.buffers->spoiled ||
           std::ranges::any_of(set.buffers->memories, [](const std::shared_ptr<Memory>& memory) {
             return memory != nullptr && !memory->Health().ok();
           });
  };
  std::vector<BufferSet> lost;  // goes without the lock
  const MutexLock lock(mutex_);
  const auto rest = std::ranges::stable_partition(buffers_, std::not_fn(is_lost));
  std::ranges::move(rest, std::back_inserter(lost));
  buffers_.erase(rest.begin(), rest.end());
  auto found = std::ranges::find_if(buffers_, is_free);
  busy |= buffers_.size() == kBufferSets;
  if (found == buffers_.end() && busy) found = buffers_.begin();
  if (found == buffers_.end()) return std::nullopt;
  BufferSet taken = std::move(*found);
  buffers_.erase(found);
  ++taken_;
  return taken;
}

// A free set of buffers, a new one, or the one that becomes free first: where enough are kept, and
// where there is no memory for another. While others submit runs with all of them, there may be
// more sets than are kept.
absl::StatusOr<PartitionedPlan::BufferSet> PartitionedPlan::TakeBuffers() const {
  if (auto taken = TakeFree(/*busy=*/false)) return *std::move(taken);
  auto buffers = AllocBuffers();
  if (absl::IsResourceExhausted(buffers.status())) {
    if (auto taken = TakeFree(/*busy=*/true)) return *std::move(taken);
  }
  TG_RETURN_IF_ERROR(buffers.status());
  const MutexLock lock(mutex_);
  ++taken_;
  return BufferSet{*std::move(buffers), {}};
}

absl::StatusOr<std::shared_ptr<const PartitionedPlan::Buffers>> PartitionedPlan::AllocBuffers()
    const {
  auto made = std::make_shared<Buffers>();
  for (size_t d = 0; d < devices_.size(); ++d) {
    std::shared_ptr<Memory>& memory = made->memories.emplace_back();
    if (buffer_bytes_[d] > 0) {
      TG_ASSIGN_OR_RETURN(memory, AllocCharged(*devices_[d], buffer_bytes_[d], account_));
    }
  }
  made->host.resize(partition_.steps.size());
  for (size_t i = 0; i < partition_.steps.size(); ++i) {
    if (!through_host_[i]) continue;
    TG_ASSIGN_OR_RETURN(made->host[i], AllocHostCharged(*devices_[partition_.steps[i].to_device],
                                                        *devices_[partition_.steps[i].device],
                                                        partition_.steps[i].bytes, account_));
  }
  return made;
}

// For the next run, unless enough of them are kept.
void PartitionedPlan::PutBack(BufferSet set) const {
  const MutexLock lock(mutex_);
  --taken_;
  if (buffers_.size() < kBufferSets) buffers_.push_back(std::move(set));
}

BufferView PartitionedPlan::View(PartMemory memory, const Buffers& buffers,
                                 std::span<const BufferView> bindings) const {
  const auto index = static_cast<size_t>(memory.index);
  if (memory.kind == PartMemory::Kind::kSlot) return bindings[index];
  const PartBuffer& buffer = partition_.buffers[index];
  return {buffers.memories[static_cast<size_t>(buffer.device)], offsets_[index], buffer.bytes};
}

}  // namespace telegrad
