// The properties of the fake's devices, by compute capability (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability"; attribute numbers of cuda.h).
#pragma once

#include <cstdint>

#include "tests/fakes/cuda/state.h"

namespace fakecuda {

inline constexpr uint64_t kStaticSharedLimit = 48 << 10;  // without asking for more

// Shared memory that a workgroup can have if the function asks for it.
uint64_t SharedLimit(const Knobs& knobs);

// The value of a CUdevice_attribute; false if the fake does not have it.
bool AttributeOf(const Knobs& knobs, const Device& device, int attribute, int* value);

}  // namespace fakecuda
