// An executable over several devices: the parts of a partition, each an executable of its device,
// and the transfers between them. A run submits every step at once, part to the compute queue of
// its device and transfer to a copy queue, with the points that it waits for; nothing waits on the
// host. A step that fails fails what depends on it, and so the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"
#include "engine/execution/executable.h"
#include "engine/execution/planned_executable.h"
#include "engine/schedule/partition.h"

namespace telegrad {

class PartitionedExecutable final : public Executable {
 public:
  // `parts` are by step, null for a transfer; `devices` by the partition's numbers, and outlive it.
  // Memory is charged to `account`, which may be null.
  static absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> Create(
      Partition partition, std::vector<SlotUse> slots, std::vector<Device*> devices,
      std::vector<std::shared_ptr<const Executable>> parts, std::shared_ptr<RunCounters> counters,
      std::shared_ptr<Account> account);

  const Partition& partition() const { return partition_; }
  // By device: bytes that its transfers were told to send so far.
  std::vector<int64_t> BytesSent() const;

  std::span<const SlotUse> slots() const override { return slots_; }
  std::span<const KernelInfo> kernels() const override { return kernels_; }
  RunCost cost() const override { return cost_; }
  std::vector<const Device*> value_devices() const override;
  int64_t kept_bytes() const override;

  // Releases the memory that it keeps for the next runs; runs in flight keep theirs.
  void ReleaseMemory() const;

 private:
  // The memory for values that a run passes between its parts. It is reused by the next run but
  // one: two runs may overlap, so that transfers of one overlap with the kernels of the other.
  struct Buffers {
    std::vector<std::shared_ptr<Memory>> memories;  // by device
    std::vector<std::shared_ptr<Memory>> host;      // by step, of the host; see NeedsHost
  };
  // The buffers of the last runs, which the next ones take again. Those of a run that is being
  // submitted are not among them.
  struct BufferSet {
    std::shared_ptr<const Buffers> buffers;
    TimelinePoint free;  // once reached; never fails
  };
  static constexpr size_t kBufferSets = 2;

  PartitionedExecutable(Partition partition, std::vector<SlotUse> slots,
                        std::vector<Device*> devices,
                        std::vector<std::shared_ptr<const Executable>> parts,
                        std::shared_ptr<RunCounters> counters, std::shared_ptr<Account> account);

  absl::Status Encode();
  absl::StatusOr<BufferSet> TakeBuffers() const;
  absl::StatusOr<std::shared_ptr<const Buffers>> AllocBuffers() const;
  void PutBack(BufferSet set) const;
  absl::StatusOr<TimelinePoint> Transfer(size_t step, BufferView to, BufferView from,
                                         const Buffers& buffers,
                                         std::span<const TimelinePoint> waits,
                                         const std::shared_ptr<RunTrace>& trace,
                                         const std::shared_ptr<const Cancellation>& cancel,
                                         RunQueues& queues) const;
  BufferView View(PartMemory memory, const Buffers& buffers,
                  std::span<const BufferView> bindings) const;
  absl::StatusOr<TimelinePoint> Submit(size_t step, std::span<const BufferView> bindings,
                                       const Buffers& buffers, std::span<const TimelinePoint> waits,
                                       const std::shared_ptr<RunTrace>& trace,
                                       const std::shared_ptr<const Cancellation>& cancel,
                                       RunQueues& queues) const;
  // A queue that is full in the middle of a run fails the run: what was submitted cannot be taken
  // back.
  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override;

  const Partition partition_;
  const std::vector<SlotUse> slots_;
  const std::vector<Device*> devices_;
  const std::vector<std::shared_ptr<const Executable>> parts_;           // by step
  std::vector<std::shared_ptr<const std::vector<RunSlice>>> transfers_;  // by step
  // By step, of a transfer through memory of the host: its second half.
  std::vector<std::shared_ptr<const std::vector<RunSlice>>> out_of_host_;
  std::vector<bool> last_;             // by step: no other waits for it
  std::vector<int64_t> offsets_;       // by buffer, in its device's memory
  std::vector<int64_t> buffer_bytes_;  // by device
  std::vector<KernelInfo> kernels_;
  RunCost cost_;

  mutable Mutex mutex_;
  mutable std::vector<BufferSet> buffers_
      TG_GUARDED_BY(mutex_);                        // that became free last comes last
  mutable std::vector<std::atomic<int64_t>> sent_;  // by device
  const std::shared_ptr<RunCounters> counters_;
  const std::shared_ptr<Account> account_;
};

}  // namespace telegrad
