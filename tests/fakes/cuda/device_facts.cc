// The tables of limits by compute capability and of attributes by number.
#include "tests/fakes/cuda/device_facts.h"

#include "tests/fakes/cuda/mig_units.h"

namespace fakecuda {

uint64_t SharedLimit(const Knobs& knobs) {
  switch (knobs.capability) {
    case 75:
      return 64 << 10;
    case 80:
    case 87:
      return 163 << 10;
    case 86:
    case 89:
    case 120:
      return 99 << 10;
    default:
      return knobs.capability < 75 ? 48 << 10 : 227 << 10;
  }
}

bool AttributeOf(const Knobs& knobs, const Device& device, int attribute, int* value) {
  const int64_t parts = device.instance == kWhole ? 1 : kInstanceParts;
  const auto shared = static_cast<int>(SharedLimit(knobs));
  const struct {
    int attribute;
    int value;
  } table[] = {
      {1, 1024},                                              // MAX_THREADS_PER_BLOCK
      {2, 1024},                                              // MAX_BLOCK_DIM_X
      {3, 1024},                                              // MAX_BLOCK_DIM_Y
      {4, 64},                                                // MAX_BLOCK_DIM_Z
      {5, 0x7fffffff},                                        // MAX_GRID_DIM_X
      {6, 65535},                                             // MAX_GRID_DIM_Y
      {7, 65535},                                             // MAX_GRID_DIM_Z
      {8, static_cast<int>(kStaticSharedLimit)},              // MAX_SHARED_MEMORY_PER_BLOCK
      {9, 65536},                                             // TOTAL_CONSTANT_MEMORY
      {10, 32},                                               // WARP_SIZE
      {11, 0x7fffffff},                                       // MAX_PITCH
      {12, 65536},                                            // MAX_REGISTERS_PER_BLOCK
      {13, 1000000},                                          // CLOCK_RATE, kHz
      {14, 512},                                              // TEXTURE_ALIGNMENT
      {15, 1},                                                // GPU_OVERLAP
      {16, static_cast<int>(knobs.multiprocessors / parts)},  // MULTIPROCESSOR_COUNT
      {17, 0},                                                // KERNEL_EXEC_TIMEOUT
      {18, 0},                                                // INTEGRATED
      {19, 1},                                                // CAN_MAP_HOST_MEMORY
      {20, 0},                                                // COMPUTE_MODE: default
      {31, 1},                                                // CONCURRENT_KERNELS
      {32, 1},                                                // ECC_ENABLED
      {33, device.gpu + 1},                                   // PCI_BUS_ID
      {34, 0},                                                // PCI_DEVICE_ID
      {35, 0},                                                // TCC_DRIVER
      {36, 1000000},                                          // MEMORY_CLOCK_RATE, kHz
      {37, 128},                                              // GLOBAL_MEMORY_BUS_WIDTH
      {38, 1 << 20},                                          // L2_CACHE_SIZE
      {39, 2048},                                             // MAX_THREADS_PER_MULTIPROCESSOR
      {40, static_cast<int>(knobs.copy_engines)},             // ASYNC_ENGINE_COUNT
      {41, 1},                                                // UNIFIED_ADDRESSING
      {50, 0},                                                // PCI_DOMAIN_ID
      {75, static_cast<int>(knobs.capability / 10)},          // COMPUTE_CAPABILITY_MAJOR
      {76, static_cast<int>(knobs.capability % 10)},          // COMPUTE_CAPABILITY_MINOR
      {78, 1},                                                // STREAM_PRIORITIES_SUPPORTED
      {81, shared + 1024},                       // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
      {82, 65536},                               // MAX_REGISTERS_PER_MULTIPROCESSOR
      {83, 0},                                   // MANAGED_MEMORY
      {89, 0},                                   // CONCURRENT_MANAGED_ACCESS
      {95, 1},                                   // COOPERATIVE_LAUNCH
      {97, shared},                              // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
      {102, knobs.virtual_memory != 0 ? 1 : 0},  // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
      {122, knobs.stream_words != 0 ? 1 : 0},    // CAN_USE_64_BIT_STREAM_MEM_OPS
      {106, 32},                                 // MAX_BLOCKS_PER_MULTIPROCESSOR
      {111, 1024},                               // RESERVED_SHARED_MEMORY_PER_BLOCK
  };
  for (const auto& row : table) {
    if (row.attribute != attribute) continue;
    *value = row.value;
    return true;
  }
  return false;
}

}  // namespace fakecuda
