// A queue in front of processes of which some may have to start, or to load code, before they can
// take certain commands. Whoever hands out the queue's work asks first, and hands out other work
// meanwhile: for how long a process does not answer is not for others to bear.
#pragma once

#include <memory>

#include "devices/api/device.h"

namespace telegrad {

class PreparingQueue {
 public:
  virtual ~PreparingQueue() = default;
  // Never waits for a process. Without a timeline, the commands can be submitted now without such a
  // wait. Else the point is reached when they can, and fails with why they cannot.
  virtual TimelinePoint Prepare(const std::shared_ptr<const CommandBuffer>& commands) = 0;
};

// Whether to allocate, load and encode on this device may wait for a process that does what one
// tenant has it do.
inline bool AsksProcess(Device& device) {
  return dynamic_cast<PreparingQueue*>(&device.queue()) != nullptr;
}

}  // namespace telegrad
