// NVIDIA's management library, which tells what a GPU measures of itself. It is a part of the
// driver, and opened at run time, as libcuda is.
#pragma once

#include <memory>
#include <string>

#include "devices/api/sensors.h"

namespace telegrad::cuda {

class Nvml;

// Null where there is no such library, where it lacks a function, or does not work: then nobody
// measures. It is never closed again.
std::shared_ptr<const Nvml> OpenNvml(const std::string& path);

// Of the GPU at that place of the PCI bus, "0000:01:00.0", as cuDeviceGetPCIBusId says: the numbers
// of the two libraries differ (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER). Where it is in MIG mode,
// `instance` is the one of its instances whose memory is meant, "MIG-...", else "". The readings
// are empty where the library knows no such GPU or instance.
std::shared_ptr<Sensors> MakeNvmlSensors(std::shared_ptr<const Nvml> nvml, std::string pci_bus_id,
                                         std::string instance = "",
                                         const Clock* clock = Clock::Steady());

}  // namespace telegrad::cuda
