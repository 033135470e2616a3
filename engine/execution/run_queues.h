// The interface through which executables submit work: as slices that each occupy a device for a
// short time only, so that the owner of the devices can run other work in between.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"

namespace telegrad {

// Consecutive commands of a run that go to the device in one submission.
struct RunSlice {
  std::shared_ptr<const CommandBuffer> commands;
  double seconds = 0;  // predicted; 0: unknown
};

// A command, with what it is predicted to take.
struct PredictedCommand {
  Command command;
  double seconds = 0;
};

// Cuts a launch of all workgroups in x, flops and bytes, predicted to take `seconds`, into
// `segments` launches in order, as equal as whole workgroups allow.
void AddLaunch(const Launch& whole, double seconds, int64_t segments,
               std::vector<PredictedCommand>* commands);

// Cuts the commands into slices of at most kSegmentSeconds, as far as single commands allow. There
// is at least one slice.
absl::StatusOr<std::shared_ptr<const std::vector<RunSlice>>> EncodeSlices(
    Device& device, std::vector<PredictedCommand> commands);

// Adds a copy, cut into parts of at most kSegmentSeconds each. Of one between `device` and `other`,
// which both are of servers, every part is a transfer that has to be agreed upon: these are longer.
void AddCopy(const CopyBytes& copy, const Device& device, std::vector<PredictedCommand>* commands,
             const Device* other = nullptr);

// The work of a run for one queue.
struct SlicedWork {
  std::shared_ptr<const std::vector<RunSlice>> slices = {};
  std::vector<BufferView> bindings = {};  // of every slice
  std::vector<TimelinePoint> waits = {};
  std::shared_ptr<RunTrace> trace = {};  // may be null
  std::shared_ptr<const Cancellation> cancellation =
      {};                              // may be null; looked at between slices, too
  std::vector<uint64_t> scalars = {};  // every slice takes the first of them
};

// Those of `scalars` that the commands take.
std::vector<uint64_t> ScalarsOf(const CommandBuffer& commands,
                                const std::vector<uint64_t>& scalars);

class RunQueues {
 public:
  virtual ~RunQueues() = default;

  // Enqueues the slices, in order, behind `waits` and behind what was submitted here for the same
  // queue before. The point is reached when all have ended, and fails with the first that does. For
  // errors see Queue::Submit; where the queue is not the device's own they may fail the point
  // instead.
  virtual absl::StatusOr<TimelinePoint> Submit(Device& device, QueueKind kind, SlicedWork work) = 0;

  // Works of one tenant and class run one after another, never slice by slice in turn; so they can
  // share memory for temporaries, and works of two classes cannot.
  static constexpr int kClasses = 3;
  virtual int run_class() const { return 0; }
};

// Submits everything to the devices' own queues at once. Where a queue is full in the middle of a
// run, it waits for room.
RunQueues& DirectQueues();

// The same for a caller that waits for the end at once: an idle device of this process may do the
// work on the caller's thread, which saves waking two threads. The parts of a graph for several
// devices would run one after another.
RunQueues& WaitingQueues();

}  // namespace telegrad
