// A fake libnvidia-ml.so.1, as strict as the NVML API Reference says: nothing before nvmlInit_v2,
// no handle but those that it gave, and no null pointer. It shares no code with what it judges. Its
// two GPUs stand on the bus in another order than the fake CUDA driver counts them. What they
// measure follows from the number of their bus, so that a reading of the other GPU shows.
//
// fakeNvmlRefuse makes all calls of a function fail, fakeNvmlCalls counts them.
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

// nvmlReturn_t of nvml.h.
constexpr int kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6;

struct Gpu {
  unsigned int bus;
};
Gpu gpus[] = {{2}, {1}};

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

int BeginOf(const char* name, const void* gpu, const void* out) {
  if (const int result = Begin(name); result != 0) return result;
  return (gpu == &gpus[0] || gpu == &gpus[1]) && out != nullptr ? 0 : kInvalidArgument;
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
  rates[0] = 10 * BusOf(gpu);
  rates[1] = 99;
  return 0;
}

FAKE_NVML_API int nvmlDeviceGetMemoryInfo(void* gpu, unsigned long long* memory) {
  if (const int r = BeginOf("nvmlDeviceGetMemoryInfo", gpu, memory); r != 0) return r;
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
