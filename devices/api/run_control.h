// What the commands of a submission have beside their bindings: its scalars, where they record
// their trace, and the cancellation that is checked before each of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "devices/api/cancellation.h"
#include "devices/api/trace.h"

namespace telegrad {

struct RunControl {
  std::vector<TraceEvent>* events = nullptr;   // null, or where each command adds one
  const Cancellation* cancellation = nullptr;  // null, or asked before each command
  std::span<const uint64_t> scalars = {};      // as many as the commands have
};

}  // namespace telegrad
