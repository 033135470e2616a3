// A device that accepts all work and runs nothing: its points are reached in order, and its memory
// is a number. Runs on it measure the cost of everything except kernels.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/host_queue.h"
#include "engine/types/target.h"

namespace telegrad {

struct NullOptions {
  int index = 0;                            // the device is called NULL:<index>
  int64_t memory_limit = int64_t{1} << 40;  // bytes
  Target target = {};                       // what programs are compiled for; passed through
  int copy_queues = 0;                      // that take copies alone, behind the one that takes all
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
};

class NullDevice : public Device {
 public:
  // Of the submissions that have ended well.
  struct Counts {
    int64_t launches = 0;
    int64_t copies = 0;
    int64_t copied_bytes = 0;
    double flops = 0;  // as predicted
    double bytes = 0;  // that launches move, as predicted
  };
  virtual Counts counts() const = 0;
};

// Programs may be anything. Memory that the host cannot address.
std::unique_ptr<NullDevice> OpenNull(const NullOptions& options);

}  // namespace telegrad
