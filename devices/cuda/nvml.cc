// Each figure is a call, and one that is refused, as ECC is by GPUs without it and utilization by
// GPUs in MIG mode, leaves its figure out and nothing else.
#include "devices/cuda/nvml.h"

#include <dlfcn.h>

#include <utility>

#include "devices/cuda/nvml_library.h"

namespace telegrad::cuda {

bool Nvml::Open(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return false;
#define NVML_SYMBOL(name, parameters)                            \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)); \
  if (name == nullptr) return false;
#define NVML_MIG_SYMBOL(name, parameters)                        \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)); \
  knows_mig_ &= name != nullptr;
#include "devices/cuda/nvml.def"
#undef NVML_SYMBOL
  return nvmlInit_v2() == NVML_SUCCESS;
}

namespace {

// What is refused has no figure.
void AskMemory(const Nvml& nvml, nvmlDevice_t of, Readings* out) {
  nvmlMemory_t memory{};
  if (nvml.nvmlDeviceGetMemoryInfo(of, &memory) != NVML_SUCCESS) return;
  (*out)[Sensor::kMemory] = static_cast<double>(memory.total);
  (*out)[Sensor::kMemoryUsed] = static_cast<double>(memory.used);
}

void AskUtilization(const Nvml& nvml, nvmlDevice_t of, Readings* out) {
  nvmlUtilization_t utilization{};
  if (nvml.nvmlDeviceGetUtilizationRates(of, &utilization) != NVML_SUCCESS) return;
  (*out)[Sensor::kUtilization] = utilization.gpu / 100.0;
}

class NvmlSensors final : public Sensors {
 public:
  NvmlSensors(std::shared_ptr<const Nvml> nvml, std::string pci_bus_id, std::string instance,
              const Clock* clock)
      : Sensors(clock),
        nvml_(std::move(nvml)),
        pci_bus_id_(std::move(pci_bus_id)),
        instance_(std::move(instance)) {}

 private:
  // The handle is asked for each time: a GPU that was reset or taken away has another, or none.
  Readings Ask() override {
    Readings out;
    nvmlDevice_t gpu = nullptr;
    if (nvml_->nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id_.c_str(), &gpu) != NVML_SUCCESS) {
      return out;
    }
    // An instance has memory of its own. Power, temperature and errors are those of its GPU.
    nvmlDevice_t instance = gpu;
    if (!instance_.empty() &&
        nvml_->nvmlDeviceGetHandleByUUID(instance_.c_str(), &instance) != NVML_SUCCESS) {
      return out;
    }
    AskUtilization(*nvml_, instance, &out);
    AskMemory(*nvml_, instance, &out);
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
  const std::string instance_;  // "": the whole GPU
};

}  // namespace

std::shared_ptr<const Nvml> OpenNvml(const std::string& path) {
  auto nvml = std::make_shared<Nvml>();
  return nvml->Open(path) ? nvml : nullptr;
}

std::shared_ptr<Sensors> MakeNvmlSensors(std::shared_ptr<const Nvml> nvml, std::string pci_bus_id,
                                         std::string instance, const Clock* clock) {
  return std::make_shared<NvmlSensors>(std::move(nvml), std::move(pci_bus_id), std::move(instance),
                                       clock);
}

}  // namespace telegrad::cuda
