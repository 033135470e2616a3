// Where the commands of a submission record their trace, and the cancellation that is checked
// before each of them.
#pragma once

#include <vector>

#include "devices/api/cancellation.h"
#include "devices/api/trace.h"

namespace telegrad {

struct RunControl {
  std::vector<TraceEvent>* events = nullptr;   // null, or where each command adds one
  const Cancellation* cancellation = nullptr;  // null, or asked before each command
};

}  // namespace telegrad
