// The ioctls of /dev/nvidia-uvm, branch 580: which address of the GPU's is which memory. Layouts of
// kernel-open/nvidia-uvm/{uvm_ioctl,uvm_linux_ioctl,uvm_types}.h in NVIDIA/open-gpu-kernel-modules
// at tag 580.142. The request is the bare number; each struct ends in the RM status.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "devices/nv/abi_580.h"

namespace telegrad::nv {

inline constexpr uint32_t kUvmRegisterGpuVaSpace = 25;
inline constexpr uint32_t kUvmUnregisterGpuVaSpace = 26;
inline constexpr uint32_t kUvmRegisterChannel = 27;
inline constexpr uint32_t kUvmUnregisterChannel = 28;
inline constexpr uint32_t kUvmMapExternalAllocation = 33;
inline constexpr uint32_t kUvmFree = 34;
inline constexpr uint32_t kUvmRegisterGpu = 37;
inline constexpr uint32_t kUvmUnregisterGpu = 38;
inline constexpr uint32_t kUvmCreateExternalRange = 73;
inline constexpr uint32_t kUvmMmInitialize = 75;
inline constexpr uint32_t kUvmInitialize = 0x30000001;

using Uuid = std::array<uint8_t, 16>;

struct UvmInitializeParams {
  uint64_t flags;
  uint32_t status;
};
static_assert(sizeof(UvmInitializeParams) == 16);

struct UvmMmInitializeParams {
  int32_t uvm_fd;
  uint32_t status;
};
static_assert(sizeof(UvmMmInitializeParams) == 8);

struct UvmRegisterGpuParams {
  Uuid gpu;
  uint8_t numa_enabled;
  alignas(4) int32_t numa_node;
  int32_t rm_fd;
  Handle client, partition;
  uint32_t status;
};
static_assert(sizeof(UvmRegisterGpuParams) == 40 && offsetof(UvmRegisterGpuParams, rm_fd) == 24);

struct UvmUnregisterGpuParams {  // the same for a GPU's address space
  Uuid gpu;
  uint32_t status;
};
static_assert(sizeof(UvmUnregisterGpuParams) == 20);

struct UvmRegisterVaSpaceParams {
  Uuid gpu;
  int32_t rm_fd;
  Handle client, va_space;
  uint32_t status;
};
static_assert(sizeof(UvmRegisterVaSpaceParams) == 32);

struct UvmRegisterChannelParams {
  Uuid gpu;
  int32_t rm_fd;
  Handle client, channel;
  alignas(8) uint64_t base;
  uint64_t length;
  uint32_t status;
};
static_assert(sizeof(UvmRegisterChannelParams) == 56 &&
              offsetof(UvmRegisterChannelParams, base) == 32);

struct UvmUnregisterChannelParams {
  Uuid gpu;
  Handle client, channel;
  uint32_t status;
};
static_assert(sizeof(UvmUnregisterChannelParams) == 28);

struct UvmRangeParams {  // UVM_CREATE_EXTERNAL_RANGE_PARAMS, UVM_FREE_PARAMS
  uint64_t base, length;
  uint32_t status;
};
static_assert(sizeof(UvmRangeParams) == 24);

struct UvmMappingAttributes {  // UvmGpuMappingAttributes
  Uuid gpu;
  uint32_t mapping, caching, format, element_bits, compression;
};
static_assert(sizeof(UvmMappingAttributes) == 36);
inline constexpr uint32_t kMapReadWriteAtomic = 1;  // UvmGpuMappingTypeReadWriteAtomic

struct UvmMapExternalParams {  // UVM_MAP_EXTERNAL_ALLOCATION_PARAMS
  uint64_t base, length, offset;
  UvmMappingAttributes attributes[256];  // UVM_MAX_GPUS
  uint64_t attributes_count;
  int32_t rm_fd;
  Handle client, memory;
  uint32_t status;
};
static_assert(sizeof(UvmMapExternalParams) == 9264 &&
              offsetof(UvmMapExternalParams, attributes_count) == 9240 &&
              offsetof(UvmMapExternalParams, status) == 9260);

}  // namespace telegrad::nv
