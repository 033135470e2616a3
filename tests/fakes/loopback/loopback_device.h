// For tests only: a stand-in for a device of another server. It runs everything on another
// device of this process, but passes on only what a network connection could carry: programs are
// tensor graphs as bytes, which the other side decodes, verifies and compiles; its memory cannot
// be addressed by the host; its timeline points are its own.
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
