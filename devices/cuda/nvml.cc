// Each figure is a call, and one that is refused, as ECC is by GPUs without it, leaves its figure
// out and nothing else.
#include "devices/cuda/nvml.h"

#include <dlfcn.h>

#include <utility>

namespace telegrad::cuda {
namespace {

// Types and numbers of nvml.h, CUDA Toolkit 12.
using nvmlReturn_t = int;
constexpr nvmlReturn_t NVML_SUCCESS = 0;
using nvmlDevice_t = struct DeviceOfNvml*;
struct nvmlUtilization_t {
  unsigned int gpu;     // percent of the time in which kernels ran, over the last sample
  unsigned int memory;  // in which memory was read or written
};
struct nvmlMemory_t {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): bytes
};
using nvmlTemperatureSensors_t = int;
constexpr nvmlTemperatureSensors_t NVML_TEMPERATURE_GPU = 0;
using nvmlMemoryErrorType_t = int;
constexpr nvmlMemoryErrorType_t NVML_MEMORY_ERROR_TYPE_CORRECTED = 0;
constexpr nvmlMemoryErrorType_t NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1;
using nvmlEccCounterType_t = int;
constexpr nvmlEccCounterType_t NVML_VOLATILE_ECC = 0;  // since the driver was loaded

}  // namespace

class Nvml {
 public:
  bool Open(const std::string& path) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
#define NVML_SYMBOL(name, parameters)                            \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)); \
  if (name == nullptr) return false;
#include "devices/cuda/nvml.def"
#undef NVML_SYMBOL
    return nvmlInit_v2() == NVML_SUCCESS;
  }

#define NVML_SYMBOL(name, parameters) nvmlReturn_t(*name) parameters = nullptr;
#include "devices/cuda/nvml.def"
#undef NVML_SYMBOL
};

namespace {

class NvmlSensors final : public Sensors {
 public:
  NvmlSensors(std::shared_ptr<const Nvml> nvml, std::string pci_bus_id, const Clock* clock)
      : Sensors(clock), nvml_(std::move(nvml)), pci_bus_id_(std::move(pci_bus_id)) {}

 private:
  // The handle is asked for each time: a GPU that was reset or taken away has another, or none.
  Readings Ask() override {
    Readings out;
    nvmlDevice_t gpu = nullptr;
    if (nvml_->nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id_.c_str(), &gpu) != NVML_SUCCESS) {
      return out;
    }
    nvmlUtilization_t utilization{};
    if (nvml_->nvmlDeviceGetUtilizationRates(gpu, &utilization) == NVML_SUCCESS) {
      out[Sensor::kUtilization] = utilization.gpu / 100.0;
    }
    nvmlMemory_t memory{};
    if (nvml_->nvmlDeviceGetMemoryInfo(gpu, &memory) == NVML_SUCCESS) {
      out[Sensor::kMemory] = static_cast<double>(memory.total);
      out[Sensor::kMemoryUsed] = static_cast<double>(memory.used);
    }
    unsigned int number = 0;
    if (nvml_->nvmlDeviceGetPowerUsage(gpu, &number) == NVML_SUCCESS) {
      out[Sensor::kPower] = number / 1000.0;
    }
    if (nvml_->nvmlDeviceGetTemperature(gpu, NVML_TEMPERATURE_GPU, &number) == NVML_SUCCESS) {
      out[Sensor::kTemperature] = number;
    }
    const std::pair<Sensor, nvmlMemoryErrorType_t> errors[] = {
        {Sensor::kEccCorrected, NVML_MEMORY_ERROR_TYPE_CORRECTED},
        {Sensor::kEccUncorrected, NVML_MEMORY_ERROR_TYPE_UNCORRECTED}};
    for (const auto& [sensor, type] : errors) {
      unsigned long long count = 0;  // NOLINT(google-runtime-int)
      if (nvml_->nvmlDeviceGetTotalEccErrors(gpu, type, NVML_VOLATILE_ECC, &count) ==
          NVML_SUCCESS) {
        out[sensor] = static_cast<double>(count);
      }
    }
    return out;
  }

  const std::shared_ptr<const Nvml> nvml_;
  const std::string pci_bus_id_;
};

}  // namespace

std::shared_ptr<const Nvml> OpenNvml(const std::string& path) {
  auto nvml = std::make_shared<Nvml>();
  return nvml->Open(path) ? nvml : nullptr;
}

std::shared_ptr<Sensors> MakeNvmlSensors(std::shared_ptr<const Nvml> nvml, std::string pci_bus_id,
                                         const Clock* clock) {
  return std::make_shared<NvmlSensors>(std::move(nvml), std::move(pci_bus_id), clock);
}

}  // namespace telegrad::cuda
