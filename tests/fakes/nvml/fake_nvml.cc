// A fake libnvidia-ml.so.1, as strict as the NVML API Reference says: nothing before nvmlInit_v2,
// no handle but those that it gave, and no null pointer. It shares no code with what it judges. Its
// two GPUs stand on the bus in another order than the fake CUDA driver counts them. What they
// measure follows from the number of their bus, so that a reading of the other GPU shows.
//
// FAKE_CUDA_MIG says which of them are in MIG mode, as it does for the fake driver. Then the
// library tells no utilization, of an instance its memory only, and of the whole GPU no memory,
// which takes privileges. The list of instances has a gap.
//
// fakeNvmlRefuse makes all calls of a function fail, fakeNvmlCalls counts them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#include "tests/fakes/cuda/mig_units.h"

namespace {

// nvmlReturn_t of nvml.h.
constexpr int kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3, kNoPermission = 4,
              kNotFound = 6, kInsufficientSize = 7;
constexpr int kMostInstances = 7;

// A GPU, or one of its instances.
struct Gpu {
  unsigned int bus;
  int instance = fakecuda::kWhole;

  int number() const { return static_cast<int>(bus) - 1; }
};
Gpu gpus[] = {{2}, {1}};
// By their places in the list of each GPU, of which the second is empty.
Gpu instances[][kMostInstances] = {{{2, 0}, {2, -2}, {2, 1}, {2, 2}, {2, 3}, {2, 4}, {2, 5}},
                                   {{1, 0}, {1, -2}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}}};

int64_t Mig() {
  const char* const mig = std::getenv("FAKE_CUDA_MIG");
  return mig == nullptr ? 0 : std::strtoll(mig, nullptr, 0);
}
bool IsThere(const Gpu& each) {
  return each.instance >= 0 && each.instance < fakecuda::Instances(Mig(), each.number());
}
bool IsInstance(const void* device) {
  for (const auto& of_gpu : instances) {
    for (const Gpu& each : of_gpu) {
      if (device == &each) return IsThere(each);
    }
  }
  return false;
}
bool IsGpu(const void* device) { return device == &gpus[0] || device == &gpus[1]; }
bool InMigMode(const void* device) {
  return fakecuda::InMigMode(Mig(), static_cast<const Gpu*>(device)->number());
}

std::mutex mutex;
bool initialized = false;
std::map<std::string, int> refused, calls;

// What every function begins with; 0: go on.
int Begin(const char* name, bool needs_init = true) {
  const std::lock_guard lock(mutex);
  ++calls[name];
  if (needs_init && !initialized) return kUninitialized;
  const auto found = refused.find(name);
  return found == refused.end() ? 0 : found->second;
}

// A function of a GPU, or of an instance, too.
int BeginOf(const char* name, const void* gpu, const void* out, bool of_instances = false) {
  if (const int result = Begin(name); result != 0) return result;
  if (out == nullptr) return kInvalidArgument;
  if (IsInstance(gpu)) return of_instances ? 0 : kNotSupported;
  return IsGpu(gpu) ? 0 : kInvalidArgument;
}

unsigned int BusOf(const void* gpu) { return static_cast<const Gpu*>(gpu)->bus; }

}  // namespace

#define FAKE_NVML_API extern "C" __attribute__((visibility("default")))

FAKE_NVML_API void fakeNvmlReset() {
  const std::lock_guard lock(mutex);
  refused.clear();
  calls.clear();
}
FAKE_NVML_API void fakeNvmlRefuse(const char* name, int result) {
  const std::lock_guard lock(mutex);
  refused[name] = result;
}
FAKE_NVML_API int fakeNvmlCalls(const char* name) {
  const std::lock_guard lock(mutex);
  return calls[name];
}

FAKE_NVML_API int nvmlInit_v2() {
  if (const int result = Begin("nvmlInit_v2", /*needs_init=*/false); result != 0) return result;
  const std::lock_guard lock(mutex);
  initialized = true;
  return 0;
}

// domain:bus:device.function, in hexadecimal digits; the domain may have 4 or 8.
FAKE_NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** gpu) {
  if (const int r = Begin("nvmlDeviceGetHandleByPciBusId_v2"); r != 0) return r;
  unsigned int domain = 0, bus = 0, device = 0, function = 0;
  char more = 0;
  if (id == nullptr || gpu == nullptr ||
      std::sscanf(id, "%8x:%2x:%2x.%1x%c", &domain, &bus, &device, &function, &more) != 4) {
    return kInvalidArgument;
  }
  for (Gpu& each : gpus) {
    if (domain != 0 || bus != each.bus || device != 0 || function != 0) continue;
    *gpu = &each;
    return 0;
  }
  return kNotFound;
}

FAKE_NVML_API int nvmlDeviceGetUtilizationRates(void* gpu, unsigned int* rates) {
  if (const int r = BeginOf("nvmlDeviceGetUtilizationRates", gpu, rates); r != 0) return r;
  if (InMigMode(gpu)) return kNotSupported;
  rates[0] = 10 * BusOf(gpu);
  rates[1] = 99;
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetMemoryInfo(void* gpu, unsigned long long* memory) {
  if (const int r = BeginOf("nvmlDeviceGetMemoryInfo", gpu, memory, true); r != 0) return r;
  if (IsInstance(gpu)) {
    memory[0] = 16 << 20;
    memory[2] = 10 * BusOf(gpu) + static_cast<const Gpu*>(gpu)->instance;
    memory[1] = memory[0] - memory[2];
    return 0;
  }
  if (InMigMode(gpu)) return kNoPermission;
  memory[0] = 1000 * BusOf(gpu);
  memory[1] = 700 * BusOf(gpu);
  memory[2] = 300 * BusOf(gpu);
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetPowerUsage(void* gpu, unsigned int* milliwatts) {
  if (const int r = BeginOf("nvmlDeviceGetPowerUsage", gpu, milliwatts); r != 0) return r;
  *milliwatts = 1500 * BusOf(gpu);
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetTemperature(void* gpu, int sensor, unsigned int* celsius) {
  if (const int r = BeginOf("nvmlDeviceGetTemperature", gpu, celsius); r != 0) return r;
  if (sensor != 0) return kInvalidArgument;
  *celsius = 40 + BusOf(gpu);
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetTotalEccErrors(void* gpu, int error, int counter,
                                              unsigned long long* count) {
  if (const int r = BeginOf("nvmlDeviceGetTotalEccErrors", gpu, count); r != 0) return r;
  if (error < 0 || error > 1 || counter < 0 || counter > 1) return kInvalidArgument;
  if (counter == 1) return kNotSupported;
  *count = (error == 0 ? 100 : 7) * BusOf(gpu);
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetCount_v2(unsigned int* count) {
  if (const int r = Begin("nvmlDeviceGetCount_v2"); r != 0) return r;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned int>(std::size(gpus));
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** gpu) {
  if (const int r = Begin("nvmlDeviceGetHandleByIndex_v2"); r != 0) return r;
  if (gpu == nullptr || index >= std::size(gpus)) return kInvalidArgument;
  *gpu = &gpus[index];
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetUUID(void* device, char* uuid, unsigned int length) {
  if (const int r = BeginOf("nvmlDeviceGetUUID", device, uuid, true); r != 0) return r;
  const auto* const of = static_cast<const Gpu*>(device);
  const std::string name = fakecuda::UuidName(of->number(), of->instance);
  if (name.size() >= length) return kInsufficientSize;
  std::memcpy(uuid, name.c_str(), name.size() + 1);
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (const int r = Begin("nvmlDeviceGetHandleByUUID"); r != 0) return r;
  if (uuid == nullptr || device == nullptr) return kInvalidArgument;
  for (size_t i = 0; i < std::size(gpus); ++i) {
    if (fakecuda::UuidName(gpus[i].number(), fakecuda::kWhole) == uuid) {
      *device = &gpus[i];
      return 0;
    }
    for (Gpu& each : instances[i]) {
      if (!IsThere(each) || fakecuda::UuidName(each.number(), each.instance) != uuid) continue;
      *device = &each;
      return 0;
    }
  }
  return kNotFound;
}

FAKE_NVML_API int nvmlDeviceGetMigMode(void* gpu, unsigned int* current, unsigned int* pending) {
  if (const int r = Begin("nvmlDeviceGetMigMode"); r != 0) return r;
  if (!IsGpu(gpu) || current == nullptr || pending == nullptr) return kInvalidArgument;
  *current = InMigMode(gpu) ? 1 : 0;
  *pending = 1 - *current;  // which says nothing of now
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetMaxMigDeviceCount(void* gpu, unsigned int* count) {
  if (const int r = Begin("nvmlDeviceGetMaxMigDeviceCount"); r != 0) return r;
  if (!IsGpu(gpu) || count == nullptr) return kInvalidArgument;
  *count = InMigMode(gpu) ? kMostInstances : 0;
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetMigDeviceHandleByIndex(void* gpu, unsigned int index,
                                                      void** instance) {
  if (const int r = Begin("nvmlDeviceGetMigDeviceHandleByIndex"); r != 0) return r;
  if (!IsGpu(gpu) || instance == nullptr || index >= kMostInstances) return kInvalidArgument;
  if (!InMigMode(gpu)) return kNotSupported;
  Gpu& each = instances[gpu == &gpus[0] ? 0 : 1][index];
  if (!IsThere(each)) return kNotFound;
  *instance = &each;
  return 0;
}
