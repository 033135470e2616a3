// Devices: their properties, the current one of each thread, and access between them.
#include <cstdio>
#include <cstring>

#include "tests/fakes/hip/functions.h"

namespace fakehip {
namespace {

constexpr int kVersion = 60'342'133;  // 6.3

// hipDeviceAttribute_t
struct Attribute {
  int number;
  int64_t (*value)(const fakecuda::Knobs& knobs);
};
constexpr Attribute kAttributes[] = {
    {2, [](const fakecuda::Knobs& k) { return k.copy_engines; }},      // AsyncEngineCount
    {5, [](const fakecuda::Knobs&) -> int64_t { return 1'000'000; }},  // ClockRate, kHz
    {57, [](const fakecuda::Knobs&) -> int64_t { return 2048; }},  // MaxThreadsPerMultiProcessor
    {59, [](const fakecuda::Knobs&) -> int64_t { return 128; }},   // MemoryBusWidth, bits
    {60, [](const fakecuda::Knobs&) -> int64_t { return 1'000'000; }},  // MemoryClockRate, kHz
    {63, [](const fakecuda::Knobs& k) { return k.multiprocessors; }},   // MultiprocessorCount
    {89, [](const fakecuda::Knobs& k) { return k.virtual_memory; }},    // VirtualMemoryManagement
    {74, [](const fakecuda::Knobs&) -> int64_t { return 64 << 10; }},   // MaxSharedMemoryPerBlock
};

}  // namespace

int HipOf(int result) {
  switch (result) {
    case fakecuda::CUDA_ERROR_DEVICE_UNAVAILABLE:
      return hipErrorInvalidDevice;
    case fakecuda::CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case fakecuda::CUDA_ERROR_MISALIGNED_ADDRESS:
      return hipErrorLaunchFailure;
    case fakecuda::CUDA_ERROR_NOT_PERMITTED:
      return hipErrorNotSupported;
    default:
      return result;
  }
}

int& CurrentDevice() {
  thread_local int device = 0;
  return device;
}

int StateOf(int device, Handle* context) {
  {
    fakecuda::Call call(fakecuda::Call::Needs::kDriver);
    if (call.result() != fakecuda::CUDA_SUCCESS) return call.result();
    const auto& devices = call.driver().devices;
    if (device < 0 || static_cast<size_t>(device) >= devices.size()) return hipErrorInvalidDevice;
    *context = devices[static_cast<size_t>(device)].primary;
    if (*context != 0) return hipSuccess;
  }
  return cuDevicePrimaryCtxRetain(context, device);
}

int Use() {
  Handle context = 0;
  const int result = StateOf(CurrentDevice(), &context);
  return result != hipSuccess ? result : cuCtxSetCurrent(context);
}

}  // namespace fakehip

using fakehip::HipOf;

FAKE_HIP_API int hipInit(unsigned int flags) { return HipOf(cuInit(flags)); }

FAKE_HIP_API int hipRuntimeGetVersion(int* version) {
  if (version == nullptr) return fakehip::hipErrorInvalidValue;
  // The knob has CUDA's form, of which 12080 is the default and stands for this version.
  const auto knob = static_cast<int>(fakeCudaGet("driver_version"));
  constexpr int kDefault = 12080;
  *version = knob == kDefault ? fakehip::kVersion : knob;
  return fakehip::hipSuccess;
}

FAKE_HIP_API int hipGetDeviceCount(int* count) { return HipOf(cuDeviceGetCount(count)); }

FAKE_HIP_API int hipDeviceGetName(char* name, int length, int device) {
  fakecuda::Call call(fakecuda::Call::Needs::kDriver);
  if (call.result() != fakecuda::CUDA_SUCCESS) return HipOf(call.result());
  if (name == nullptr || length <= 0) return fakehip::hipErrorInvalidValue;
  if (device < 0 || static_cast<size_t>(device) >= call.driver().devices.size()) {
    return fakehip::hipErrorInvalidDevice;
  }
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU gfx%x",
                static_cast<unsigned>(call.driver().knobs.processor));
  return fakehip::hipSuccess;
}

FAKE_HIP_API int hipDeviceGetAttribute(int* value, int attribute, int device) {
  fakecuda::Call call(fakecuda::Call::Needs::kDriver);
  if (call.result() != fakecuda::CUDA_SUCCESS) return HipOf(call.result());
  if (device < 0 || static_cast<size_t>(device) >= call.driver().devices.size()) {
    return fakehip::hipErrorInvalidDevice;
  }
  for (const auto& row : fakehip::kAttributes) {
    if (value == nullptr || row.number != attribute) continue;
    *value = static_cast<int>(row.value(call.driver().knobs));
    return fakehip::hipSuccess;
  }
  return fakehip::hipErrorInvalidValue;
}

FAKE_HIP_API int hipGetDevicePropertiesR0600(void* properties, int device) {
  fakecuda::Call call(fakecuda::Call::Needs::kDriver);
  if (call.result() != fakecuda::CUDA_SUCCESS) return HipOf(call.result());
  if (properties == nullptr) return fakehip::hipErrorInvalidValue;
  if (device < 0 || static_cast<size_t>(device) >= call.driver().devices.size()) {
    return fakehip::hipErrorInvalidDevice;
  }
  const fakecuda::Knobs& knobs = call.driver().knobs;
  auto* const out = static_cast<char*>(properties);
  std::memset(out, 0, fakehip::kPropertiesBytes);
  std::snprintf(out, fakehip::kNameBytes, "Fake GPU");
  const auto memory = static_cast<size_t>(knobs.memory);
  std::memcpy(out + fakehip::kTotalMemoryAt, &memory, sizeof(memory));
  std::snprintf(out + fakehip::kArchitectureAt, fakehip::kNameBytes, "gfx%x%s",
                static_cast<unsigned>(knobs.processor),
                knobs.processor < 0x1000 ? ":sramecc+:xnack-" : "");
  return fakehip::hipSuccess;
}

FAKE_HIP_API int hipDeviceCanAccessPeer(int* can, int device, int peer) {
  return HipOf(cuDeviceCanAccessPeer(can, device, peer));
}

FAKE_HIP_API int hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
  FAKE_HIP_USE();
  Handle other = 0;
  if (const int result = fakehip::StateOf(peer, &other); result != 0) return HipOf(result);
  return HipOf(cuCtxEnablePeerAccess(other, flags));
}

FAKE_HIP_API int hipDeviceDisablePeerAccess(int peer) {
  FAKE_HIP_USE();
  Handle other = 0;
  if (const int result = fakehip::StateOf(peer, &other); result != 0) return HipOf(result);
  return HipOf(cuCtxDisablePeerAccess(other));
}

// The state of the thread's device is made anew when it is used next.
FAKE_HIP_API int hipDeviceReset() {
  FAKE_HIP_USE();
  const int device = fakehip::CurrentDevice();
  if (const int result = cuDevicePrimaryCtxReset_v2(device); result != 0) return HipOf(result);
  return HipOf(cuDevicePrimaryCtxRelease_v2(device));
}

FAKE_HIP_API int hipSetDevice(int device) {
  Handle context = 0;
  if (const int result = fakehip::StateOf(device, &context); result != 0) return HipOf(result);
  fakehip::CurrentDevice() = device;
  return HipOf(cuCtxSetCurrent(context));
}

namespace {

struct Text {
  int number;
  const char* name;
  const char* text;
};
constexpr Text kTexts[] = {
#define RESULT(name, number, text) {number, #name, text},
#include "tests/fakes/hip/results.def"
#undef RESULT
};

int FindText(int result, const char** out, const char* Text::* field) {
  if (out == nullptr) return fakehip::hipErrorInvalidValue;
  *out = nullptr;
  for (const Text& row : kTexts) {
    if (row.number == result) *out = row.*field;
  }
  return *out == nullptr ? fakehip::hipErrorInvalidValue : fakehip::hipSuccess;
}

}  // namespace

FAKE_HIP_API int hipDrvGetErrorName(int result, const char** name) {
  return FindText(result, name, &Text::name);
}

FAKE_HIP_API int hipDrvGetErrorString(int result, const char** text) {
  return FindText(result, text, &Text::text);
}
