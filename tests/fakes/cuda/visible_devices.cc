// Every device that there is, those that the variable names, and of these what a process may have.
#include "tests/fakes/cuda/visible_devices.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/fakes/cuda/mig_units.h"

namespace fakecuda {
namespace {

Device DeviceOf(int gpu, int instance) {
  Device device;
  device.gpu = gpu;
  device.instance = instance;
  return device;
}

std::vector<Device> DevicesOf(const Knobs& knobs, int gpu) {
  if (!InMigMode(knobs.mig, gpu)) return {DeviceOf(gpu, kWhole)};
  std::vector<Device> out;
  for (int i = 0; i < Instances(knobs.mig, gpu); ++i) out.push_back(DeviceOf(gpu, i));
  return out;
}

// Of a GPU in MIG mode, the first instance.
std::vector<Device> NamedUnits(const Knobs& knobs, const std::string& entry) {
  std::vector<Device> found;
  const auto gpus = static_cast<int>(knobs.devices);
  if (!entry.empty() && entry.find_first_not_of("0123456789") == std::string::npos) {
    const int64_t number = std::strtoll(entry.c_str(), nullptr, 10);
    if (number < gpus) found = DevicesOf(knobs, static_cast<int>(number));
  } else if (entry.starts_with("GPU-")) {
    int matches = 0;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (!UuidName(gpu, kWhole).starts_with(entry)) continue;
      ++matches;
      found = DevicesOf(knobs, gpu);
    }
    if (matches != 1) found.clear();
  } else if (entry.starts_with("MIG-")) {
    for (int gpu = 0; gpu < gpus; ++gpu) {
      for (const Device& device : DevicesOf(knobs, gpu)) {
        if (device.instance != kWhole && UuidName(gpu, device.instance) == entry) {
          found.push_back(device);
        }
      }
    }
  }
  if (found.size() > 1) found.resize(1);
  return found;
}

}  // namespace

std::vector<Device> VisibleDevices(const Knobs& knobs) {
  std::vector<Device> out;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    for (int gpu = 0; gpu < knobs.devices; ++gpu) {
      for (const Device& device : DevicesOf(knobs, gpu)) out.push_back(device);
    }
  } else {
    std::istringstream entries(visible);
    for (std::string entry; std::getline(entries, entry, ',');) {
      const std::vector<Device> named = NamedUnits(knobs, entry);
      if (named.empty()) break;
      out.push_back(named[0]);
    }
  }
  const auto instance =
      std::ranges::find_if(out, [](const Device& each) { return each.instance != kWhole; });
  if (instance != out.end()) return {*instance};
  return out;
}

}  // namespace fakecuda
