// The functions of the fake NVIDIA driver that the fake HIP library stands on, and the device that
// a thread works on: HIP has no contexts, but one state for each device, which is made when it is
// first used and lasts.
#pragma once

#include "tests/fakes/cuda/state.h"
#include "tests/fakes/hip/abi.h"

using fakecuda::HostFunction;
using fakecuda::KernelNodeParams;
using fakecuda::MemcpyParams;
using fakehip::DevicePointer;
using fakehip::Handle;

extern "C" {
#define FUNCTION(result, name, parameters) result name parameters;
#include "tests/fakes/cuda/functions.def"
#undef FUNCTION
}

namespace fakehip {

// HIP's number for what the fake driver says.
int HipOf(int result);

// The state of the device, as the driver's primary context; an error where there is none.
int StateOf(int device, Handle* context);
// Makes the state of the thread's device the current one.
int Use();
// The thread's device.
int& CurrentDevice();

#define FAKE_HIP_USE()                              \
  if (const int used = fakehip::Use(); used != 0) { \
    return fakehip::HipOf(used);                    \
  }

}  // namespace fakehip
