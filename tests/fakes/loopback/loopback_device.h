// For tests only: a device behind a seam: what is beyond it is another device of this process, but
// nothing else crosses than what could cross a channel. Its programs are tensor graphs as bytes,
// which the other side decodes, verifies and compiles; its memory cannot be addressed by the host;
// its points are its own. So it stands for a device of another server, and finds out what would not
// work there.
#pragma once

#include <memory>

#include "devices/api/device.h"
#include "tests/fakes/loopback/graph_program.h"

namespace telegrad {

struct LoopbackOptions {
  int index = 0;                  // the device is called LOOPBACK:<index>
  std::unique_ptr<Device> inner;  // host visible
  GraphLoader load;
};

// The device ends what was submitted to it before the inner device goes.
std::unique_ptr<Device> OpenLoopback(LoopbackOptions options);

}  // namespace telegrad
