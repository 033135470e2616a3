// The functions and types of NVIDIA's management library, opened at run time.
#pragma once

#include <string>

namespace telegrad::cuda {

// Types and numbers of nvml.h, CUDA Toolkit 12.
using nvmlReturn_t = int;
inline constexpr nvmlReturn_t NVML_SUCCESS = 0;
using nvmlDevice_t = struct DeviceOfNvml*;
struct nvmlUtilization_t {
  unsigned int gpu;     // percent of the time in which kernels ran, over the last sample
  unsigned int memory;  // in which memory was read or written
};
struct nvmlMemory_t {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): bytes
};
using nvmlTemperatureSensors_t = int;
inline constexpr nvmlTemperatureSensors_t NVML_TEMPERATURE_GPU = 0;
using nvmlMemoryErrorType_t = int;
inline constexpr nvmlMemoryErrorType_t NVML_MEMORY_ERROR_TYPE_CORRECTED = 0;
inline constexpr nvmlMemoryErrorType_t NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1;
using nvmlEccCounterType_t = int;
inline constexpr nvmlEccCounterType_t NVML_VOLATILE_ECC = 0;  // since the driver was loaded
inline constexpr unsigned int NVML_DEVICE_MIG_ENABLE = 1;
inline constexpr unsigned int NVML_DEVICE_UUID_V2_BUFFER_SIZE = 96;

class Nvml {
 public:
  // Whether there is such a library, and it works.
  bool Open(const std::string& path);
  // Whether it has all that tells of instances.
  bool knows_mig() const { return knows_mig_; }

#define NVML_SYMBOL(name, parameters) nvmlReturn_t(*name) parameters = nullptr;
#include "devices/cuda/nvml.def"
#undef NVML_SYMBOL

 private:
  bool knows_mig_ = true;
};

}  // namespace telegrad::cuda
