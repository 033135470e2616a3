// The part of the CUDA driver API's binary interface that the fake has: result codes, handles and
// the layouts that callers pass. Facts of cuda.h 12.8 and of the CUDA Driver API reference.
#pragma once

#include <cstddef>
#include <cstdint>

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

namespace fakecuda {

// Every result the fake can give, with the number and name of cuda.h.
enum Result : int {
#define RESULT(name, number, text) name = number,
#include "tests/fakes/cuda/results.def"
#undef RESULT
};

// Handles are numbers that were never used before and point nowhere.
using Handle = uint64_t;
using DevicePointer = uint64_t;
using HostFunction = void (*)(void* data);

struct Uuid {
  char bytes[16];
};

// CUipcMemHandle
struct IpcHandle {
  char bytes[64];
};

// CUmemLocation; type 1 is a device's memory.
struct MemoryLocation {
  int type;
  int id;
};

// CUmemAllocationProp
struct AllocationProperties {
  int type;  // 1: pinned
  int handle_types;
  MemoryLocation location;
  void* win32_meta_data;
  unsigned char compression;
  unsigned char rdma_capable;
  unsigned short usage;
  unsigned char reserved[4];
};
static_assert(sizeof(AllocationProperties) == 32);

// CUmemAccessDesc; flags 0: none, 3: to read and write.
struct AccessDescription {
  MemoryLocation location;
  int flags;
};
static_assert(sizeof(AccessDescription) == 12);

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNodeParams {
  Handle func;
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
  void** kernel_params;
  void** extra;
  Handle kern;
  Handle ctx;
};
static_assert(sizeof(KernelNodeParams) == 72);

// CUmemorytype
enum MemoryType : unsigned int { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };

struct MemcpySide {
  size_t x_bytes;
  size_t y;
  size_t z;
  size_t lod;
  unsigned int type;
  void* host;
  DevicePointer device;
  Handle array;
  void* reserved;
  size_t pitch;
  size_t height;
};

// CUDA_MEMCPY3D_v2
struct MemcpyParams {
  MemcpySide from;
  MemcpySide to;
  size_t width_bytes;
  size_t height;
  size_t depth;
};
static_assert(sizeof(MemcpyParams) == 200);

// CUfunction_attribute
enum FunctionAttribute : int {
  kMaxThreadsPerBlock = 0,
  kSharedSizeBytes = 1,
  kConstSizeBytes = 2,
  kLocalSizeBytes = 3,
  kNumRegs = 4,
  kPtxVersion = 5,
  kBinaryVersion = 6,
  kCacheModeCa = 7,
  kMaxDynamicSharedSizeBytes = 8,
  kPreferredCarveout = 9,
};

// CUjit_option
enum JitOption : int {
  kJitMaxRegisters = 0,
  kJitWallTime = 2,
  kJitInfoLog = 3,
  kJitInfoLogSize = 4,
  kJitErrorLog = 5,
  kJitErrorLogSize = 6,
  kJitOptimizationLevel = 7,
  kJitTargetFromContext = 8,
  kJitGenerateDebugInfo = 11,
  kJitLogVerbose = 12,
  kJitGenerateLineInfo = 13,
  kJitCacheMode = 14,
};

// The keys of cuLaunchKernel's `extra`.
inline constexpr uintptr_t kLaunchParamEnd = 0;
inline constexpr uintptr_t kLaunchParamBuffer = 1;
inline constexpr uintptr_t kLaunchParamBufferSize = 2;

}  // namespace fakecuda
