// The library's list has a place for each instance that a GPU could have; empty ones are skipped.
#include "devices/cuda/mig.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "devices/cuda/nvml_library.h"
#include "engine/base/strings.h"

namespace telegrad::cuda {
namespace {

// One GPU of the list.
struct Gpu {
  std::string uuid;  // "GPU-..."
  bool in_mig_mode = false;
  std::vector<std::string> instances = {};
};

// "": the library does not tell.
std::string UuidOf(const Nvml& nvml, nvmlDevice_t device) {
  std::array<char, NVML_DEVICE_UUID_V2_BUFFER_SIZE> uuid{};
  if (nvml.nvmlDeviceGetUUID(device, uuid.data(), static_cast<unsigned int>(uuid.size()) - 1) !=
      NVML_SUCCESS) {
    return "";
  }
  return uuid.data();
}

bool IsInMigMode(const Nvml& nvml, nvmlDevice_t gpu) {
  unsigned int current = 0, pending = 0;
  return nvml.nvmlDeviceGetMigMode(gpu, &current, &pending) == NVML_SUCCESS &&
         current == NVML_DEVICE_MIG_ENABLE;
}

std::vector<std::string> InstancesOf(const Nvml& nvml, nvmlDevice_t gpu) {
  std::vector<std::string> out;
  unsigned int most = 0;
  if (nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, &most) != NVML_SUCCESS) return out;
  for (unsigned int i = 0; i < most; ++i) {
    nvmlDevice_t instance = nullptr;
    if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &instance) != NVML_SUCCESS) continue;
    std::string uuid = UuidOf(nvml, instance);
    if (!uuid.empty()) out.push_back(std::move(uuid));
  }
  return out;
}

std::vector<Gpu> AllGpus(const Nvml& nvml, std::vector<std::string>* notes) {
  std::vector<Gpu> out;
  unsigned int count = 0;
  if (nvml.nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS) return out;
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t gpu = nullptr;
    const nvmlReturn_t found = nvml.nvmlDeviceGetHandleByIndex_v2(i, &gpu);
    std::string uuid = found == NVML_SUCCESS ? UuidOf(nvml, gpu) : "";
    if (uuid.empty()) {
      notes->push_back(StrCat("CUDA: GPU ", i,
                              " of nvidia-smi is left out: the management library ",
                              "does not tell of it (error ", found, ")"));
      continue;
    }
    out.push_back({.uuid = std::move(uuid), .in_mig_mode = IsInMigMode(nvml, gpu)});
    if (!out.back().in_mig_mode) continue;
    out.back().instances = InstancesOf(nvml, gpu);
    if (!out.back().instances.empty()) continue;
    notes->push_back(StrCat("CUDA: ", out.back().uuid, " is left out: it is in MIG mode and has ",
                            "no instance (nvidia-smi mig -cgi PROFILE -C makes one)"));
  }
  return out;
}

std::vector<std::string> UnitsOf(const Gpu& gpu) {
  return gpu.in_mig_mode ? gpu.instances : std::vector<std::string>{gpu.uuid};
}

// What an entry of CUDA_VISIBLE_DEVICES names; none: nothing, or more than the driver would know
// apart.
std::vector<std::string> Named(const std::vector<Gpu>& gpus, std::string_view entry) {
  std::vector<std::string> out;
  if (!entry.starts_with("GPU-") && !entry.starts_with("MIG-")) return out;
  int named = 0;
  for (const Gpu& gpu : gpus) {
    if (gpu.uuid.starts_with(entry)) {
      ++named;
      out = UnitsOf(gpu);
    }
    for (const std::string& instance : gpu.instances) {
      if (!instance.starts_with(entry)) continue;
      ++named;
      out = {instance};
    }
  }
  return named == 1 ? out : std::vector<std::string>();
}

}  // namespace

MigUnits FindMigUnits(const Nvml& nvml, const char* visible) {
  MigUnits out;
  if (!nvml.knows_mig()) return out;
  const std::vector<Gpu> gpus = AllGpus(nvml, &out.notes);
  for (const Gpu& gpu : gpus) out.any_mig |= gpu.in_mig_mode;
  if (!out.any_mig) return {};
  if (visible == nullptr) {
    for (const Gpu& gpu : gpus) {
      for (std::string& uuid : UnitsOf(gpu)) out.uuids.push_back(std::move(uuid));
    }
    return out;
  }
  const std::string_view list(visible);
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::vector<std::string> named = Named(gpus, list.substr(begin, end - begin));
    if (named.empty()) return {};
    for (std::string& uuid : named) out.uuids.push_back(std::move(uuid));
    begin = end + 1;
  }
  out.notes.clear();  // of GPUs that may not be meant
  return out;
}

std::string UuidText(const CUuuid& uuid, bool instance) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = instance ? "MIG-" : "GPU-";
  for (size_t i = 0; i < std::size(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

bool IsInMigMode(const Nvml& nvml, const std::string& pci_bus_id) {
  nvmlDevice_t gpu = nullptr;
  return nvml.knows_mig() &&
         nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.c_str(), &gpu) == NVML_SUCCESS &&
         IsInMigMode(nvml, gpu);
}

std::optional<int64_t> MemoryOf(const Nvml& nvml, const std::string& uuid) {
  nvmlDevice_t device = nullptr;
  nvmlMemory_t memory{};
  if (!nvml.knows_mig() || nvml.nvmlDeviceGetHandleByUUID(uuid.c_str(), &device) != NVML_SUCCESS ||
      nvml.nvmlDeviceGetMemoryInfo(device, &memory) != NVML_SUCCESS) {
    return std::nullopt;
  }
  return static_cast<int64_t>(memory.total);
}

}  // namespace telegrad::cuda
