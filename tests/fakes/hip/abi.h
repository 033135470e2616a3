// The part of the HIP runtime API's binary interface that the fake has. Facts of hip_runtime_api.h
// and driver_types.h of ROCm 6.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/fakes/cuda/abi.h"

#define FAKE_HIP_API extern "C" __attribute__((visibility("default")))

namespace fakehip {

enum HipResult : int {
#define RESULT(name, number, text) name = number,
#include "tests/fakes/hip/results.def"
#undef RESULT
};

using fakecuda::DevicePointer;
using fakecuda::Handle;

struct Dim3 {
  unsigned int x, y, z;
};

// hipKernelNodeParams
struct KernelNode {
  Dim3 block;
  void** extra;
  Handle function;
  Dim3 grid;
  void** parameters;
  unsigned int shared_bytes;
};
static_assert(sizeof(KernelNode) == 64);

inline constexpr int kDeviceToDevice = 3;  // hipMemcpyKind

// hipDeviceProp_tR0600: where its members lie.
inline constexpr size_t kPropertiesBytes = 1472;
inline constexpr size_t kTotalMemoryAt = 288;
inline constexpr size_t kNameBytes = 256;
inline constexpr size_t kArchitectureAt = 1160;

}  // namespace fakehip
