// A device at the other end of a connection, which is made when it is first used and when it was
// lost.
#pragma once

#include "devices/api/device.h"

namespace telegrad {

class Connects {
 public:
  virtual ~Connects() = default;
  virtual bool is_connected() const = 0;
};

// Whether to allocate on this device waits for a connection, which is nothing for a thread that
// others need: nobody may answer.
inline bool AwaitsConnection(const Device& device) {
  const auto* connects = dynamic_cast<const Connects*>(&device);
  return connects != nullptr && !connects->is_connected();
}

}  // namespace telegrad
