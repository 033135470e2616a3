// Initialization and version of the driver, and the properties of its devices.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/fakes/cuda/device_facts.h"
#include "tests/fakes/cuda/mig_units.h"
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/state.h"
#include "tests/fakes/cuda/visible_devices.h"

using fakecuda::Call;
using fakecuda::Driver;

namespace {

bool IsDevice(Driver& driver, int device) {
  return device >= 0 && static_cast<size_t>(device) < driver.devices.size();
}

}  // namespace

FAKE_CUDA_API int cuInit(unsigned int flags) {
  Call call(Call::Needs::kNothing);
  Driver& driver = call.driver();
  if (flags != 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (driver.knobs.init_error != 0) return static_cast<int>(driver.knobs.init_error);
  if (driver.knobs.devices == 0) return fakecuda::CUDA_ERROR_NO_DEVICE;
  if (driver.initialized) return fakecuda::CUDA_SUCCESS;
  driver.devices = fakecuda::VisibleDevices(driver.knobs);
  if (driver.devices.empty()) return fakecuda::CUDA_ERROR_NO_DEVICE;
  driver.initialized = true;
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  driver.eager = loading != nullptr && std::strcmp(loading, "EAGER") == 0;
  driver.random.seed(static_cast<uint64_t>(driver.knobs.seed));
  if (driver.knobs.verbose != 0) {
    std::fprintf(stderr, "fake CUDA: seed %lld\n", static_cast<long long>(driver.knobs.seed));
  }
  fakecuda::StartScheduler(driver);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDriverGetVersion(int* version) {
  Call call(Call::Needs::kNothing);
  if (version == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  *version = static_cast<int>(call.driver().knobs.driver_version);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDeviceGetCount(int* count) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (count == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(call.driver().devices.size());
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDeviceGet(int* device, int ordinal) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (device == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(call.driver(), ordinal)) return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDeviceGetName(char* name, int length, int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (name == nullptr || length <= 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(call.driver(), device)) return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  const auto& of = call.driver().devices[static_cast<size_t>(device)];
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU sm_%d%s",
                static_cast<int>(call.driver().knobs.capability),
                of.instance == fakecuda::kWhole ? "" : " MIG 1g.16mb");
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (value == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(call.driver(), device)) return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  return fakecuda::AttributeOf(call.driver().knobs,
                               call.driver().devices[static_cast<size_t>(device)], attribute, value)
             ? fakecuda::CUDA_SUCCESS
             : fakecuda::CUDA_ERROR_INVALID_VALUE;
}

FAKE_CUDA_API int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (bytes == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(call.driver(), device)) return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  *bytes = static_cast<size_t>(
      call.driver().MemoryOf(call.driver().devices[static_cast<size_t>(device)]));
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDeviceGetUuid_v2(fakecuda::Uuid* uuid, int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (uuid == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(call.driver(), device)) return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  const auto& of = call.driver().devices[static_cast<size_t>(device)];
  std::memcpy(uuid->bytes, fakecuda::UuidBytes(of.gpu, of.instance).data(), 16);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDeviceGetPCIBusId(char* id, int length, int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (id == nullptr || length < 13) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(call.driver(), device)) return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(
      id, static_cast<size_t>(length), "0000:%02X:00.0",
      static_cast<unsigned>(call.driver().devices[static_cast<size_t>(device)].gpu + 1) & 255);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (can == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(call.driver(), device) || !IsDevice(call.driver(), peer)) {
    return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  }
  *can = device != peer && call.driver().knobs.peer_access != 0 ? 1 : 0;
  return fakecuda::CUDA_SUCCESS;
}
