// GPUs that are split into instances (NVIDIA Multi-Instance GPU User Guide), as the management
// library tells of them. A GPU in MIG mode is no device of CUDA; each of its compute instances is
// one. A process has one instance at most, and no whole GPU beside it, whatever there is: the one
// that CUDA_VISIBLE_DEVICES names when cuInit is called, else the first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "devices/cuda/cuda_api.h"

namespace telegrad::cuda {

class Nvml;

// What a process can have as a device: a GPU that is not in MIG mode, or an instance. By its UUID
// as CUDA_VISIBLE_DEVICES and nvidia-smi -L write it: "GPU-..." or "MIG-...".
struct MigUnits {
  bool any_mig = false;  // whether some GPU is in MIG mode; else nothing else is said
  std::vector<std::string> uuids = {};  // in the order of nvidia-smi -L
  std::vector<std::string> notes = {};  // what cannot be used, and why
};

// `visible`: CUDA_VISIBLE_DEVICES, or null. Where that names GPUs and instances by their UUIDs or
// beginnings of these, only they count, in its order; a GPU in MIG mode stands for all its
// instances. Where it names others, as by numbers, the driver alone knows which these are: then
// any_mig is false.
MigUnits FindMigUnits(const Nvml& nvml, const char* visible);

// "MIG-" or "GPU-", and the bytes as nvidia-smi writes them.
std::string UuidText(const CUuuid& uuid, bool instance);

// Whether the GPU at that place of the PCI bus is in MIG mode, so that what CUDA shows there is an
// instance.
bool IsInMigMode(const Nvml& nvml, const std::string& pci_bus_id);

// Bytes of memory of what has that UUID; nothing where the library does not tell.
std::optional<int64_t> MemoryOf(const Nvml& nvml, const std::string& uuid);

}  // namespace telegrad::cuda
