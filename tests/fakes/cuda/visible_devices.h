// Which devices a process sees (CUDA Programming Guide, "CUDA Environment Variables"; MIG User
// Guide, "Device Enumeration").
#pragma once

#include <vector>

#include "tests/fakes/cuda/state.h"

namespace fakecuda {

// By CUDA_VISIBLE_DEVICES as it is now: numbers of GPUs, and UUIDs or their beginnings, up to the
// first entry that names nothing. A GPU in MIG mode is only there by an instance. With an instance
// among them, a process sees the first instance alone.
std::vector<Device> VisibleDevices(const Knobs& knobs);

}  // namespace fakecuda
