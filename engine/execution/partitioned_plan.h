// What the runs of a partition share, whatever the values of its variables: what a run binds, the
// memory in which parts and transfers hand values over, and the transfers, encoded. A transfer of
// which the values decide how much a run needs is encoded for lengths that are an eighth of their
// power of two apart, so that a value that grows by one seldom has one that is new.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"
#include "engine/execution/executable.h"
#include "engine/execution/planned_executable.h"
#include "engine/schedule/partition.h"
#include "engine/types/var_value.h"

namespace telegrad {

// How many bytes of a transfer a run sends that needs `bytes` of its `most`: rounded up to an
// eighth of their power of two, and 64 at least.
int64_t BytesToSend(int64_t bytes, int64_t most);

// Thread-safe.
class PartitionedPlan {
 public:
  // The memory for values that a run passes between its parts. It is reused by the next run but
  // one: two runs may overlap, so that transfers of one overlap with the kernels of the other.
  struct Buffers {
    std::vector<std::shared_ptr<Memory>> memories;  // by device
    std::vector<std::shared_ptr<Memory>> host;      // by step, of the host; null: goes directly
    // A run with them has failed. What it would have written on another server stays poisoned there
    // until all of the memory is written anew, which no run does with one value of several.
    mutable std::atomic<bool> spoiled{false};
  };
  // The buffers of the last runs, which the next ones take again. Those of a run that is being
  // submitted are not among them.
  struct BufferSet {
    std::shared_ptr<const Buffers> buffers;
    TimelinePoint free;  // once reached; never fails
  };
  // A transfer of so many bytes.
  struct Transfer {
    int64_t bytes = 0;
    std::shared_ptr<const std::vector<RunSlice>> copy;
    std::shared_ptr<const std::vector<RunSlice>>
        out_of_host;  // its second half; null: there is none
  };
  // Those of all parts.
  struct Kernels {
    std::vector<std::shared_ptr<const Executable>> parts;
    std::vector<KernelInfo> infos;
  };

  // `devices` by the partition's numbers, and outlive it. Memory is charged to `account`, which may
  // be null. `reason` is added to those of the first kernel, for reports, unless it is empty.
  // RESOURCE_EXHAUSTED: the values alone would not fit on a device.
  static absl::StatusOr<std::shared_ptr<const PartitionedPlan>> Create(
      Partition partition, std::vector<SlotUse> slots, std::vector<Device*> devices,
      std::string reason, std::shared_ptr<RunCounters> counters, std::shared_ptr<Account> account);

  const Partition& partition() const { return partition_; }
  std::span<const SlotUse> slots() const { return slots_; }
  std::span<Device* const> devices() const { return devices_; }
  // Bytes of `Buffers` on a device.
  int64_t buffer_bytes(size_t device) const { return buffer_bytes_[device]; }
  // Whether no other step waits for it.
  bool IsLast(size_t step) const { return last_[step]; }
  // A lower bound of the host memory that it occupies.
  int64_t kept_bytes() const;

  // Of a run with these values, which are sorted.
  absl::StatusOr<std::shared_ptr<const Transfer>> TransferFor(
      size_t step, std::span<const VarValue> values) const;
  // By step; null for a transfer.
  std::shared_ptr<const Kernels> KernelsOf(
      std::span<const std::shared_ptr<const Executable>> parts) const;

  // Sees to it that there is a set of buffers, which runs then share if there is memory for one
  // alone. RESOURCE_EXHAUSTED: there is none, neither on the devices nor in the account. Does
  // nothing where values lie on a disk, which only a run that may writes.
  absl::Status Reserve() const;
  absl::StatusOr<BufferSet> TakeBuffers() const;
  void PutBack(BufferSet set) const;
  BufferView View(PartMemory memory, const Buffers& buffers,
                  std::span<const BufferView> bindings) const;
  absl::StatusOr<TimelinePoint> Send(size_t step, const Transfer& transfer,
                                     std::span<const BufferView> bindings, const Buffers& buffers,
                                     std::span<const TimelinePoint> waits,
                                     const std::shared_ptr<RunTrace>& trace,
                                     const std::shared_ptr<const Cancellation>& cancel,
                                     RunQueues& queues) const;
  // By device: bytes that its transfers were told to send so far.
  std::vector<int64_t> BytesSent() const;
  // Releases the memory that it keeps for the next runs; runs in flight keep theirs.
  void ReleaseMemory() const;

 private:
  static constexpr size_t kBufferSets = 2;
  static constexpr size_t kLengths = 16;  // of a transfer, that are kept

  PartitionedPlan(Partition partition, std::vector<SlotUse> slots, std::vector<Device*> devices,
                  std::string reason, std::shared_ptr<RunCounters> counters,
                  std::shared_ptr<Account> account);

  absl::Status Place();
  absl::StatusOr<std::shared_ptr<const Transfer>> Encode(size_t step, int64_t bytes) const;
  absl::StatusOr<std::shared_ptr<const Buffers>> AllocBuffers() const;
  // One that is free, or, if enough are kept or `busy`, that becomes free first.
  std::optional<BufferSet> TakeFree(bool busy) const;

  const Partition partition_;
  const std::vector<SlotUse> slots_;
  const std::vector<Device*> devices_;
  const std::string reason_;
  std::vector<bool> last_;             // by step
  std::vector<bool> through_host_;     // by step
  std::vector<int64_t> offsets_;       // by buffer, in its device's memory
  std::vector<int64_t> buffer_bytes_;  // by device

  mutable Mutex mutex_;
  mutable std::vector<BufferSet> buffers_
      TG_GUARDED_BY(mutex_);                         // that became free last comes last
  mutable int64_t taken_ TG_GUARDED_BY(mutex_) = 0;  // sets of runs that are being submitted
  // By step; the length that was encoded last comes last.
  mutable std::vector<std::vector<std::shared_ptr<const Transfer>>> transfers_
      TG_GUARDED_BY(mutex_);
  mutable std::shared_ptr<const Kernels> kernels_ TG_GUARDED_BY(mutex_);  // the latest
  mutable std::vector<std::atomic<int64_t>> sent_;                        // by device
  const std::shared_ptr<RunCounters> counters_;
  const std::shared_ptr<Account> account_;
};

}  // namespace telegrad
