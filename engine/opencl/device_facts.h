// The devices that OpenCL's platforms show, and what kernels for them may use: a Target.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/opencl/library.h"
#include "engine/types/target.h"

namespace telegrad::opencl {

struct PlatformDevice {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
};

struct Listing {
  std::vector<PlatformDevice> devices;  // of all platforms, in the loader's order
  std::vector<std::string> left_out;    // platforms that do not tell, and why
};

// NOT_FOUND where there is no device; what a platform said, where that is why.
absl::StatusOr<Listing> ListDevices(const Library& library);

// The device's name as its driver gives it; "?" where it gives none.
std::string NameOf(const Library& library, const PlatformDevice& device);

struct DeviceFacts {
  // Its `cpu` names device, driver and platform with their versions: what compiles the same source
  // to the same code.
  Target target;
  int64_t memory_bytes = 0;      // all of its memory
  int64_t allocation_bytes = 0;  // of one buffer, at most
  double flops = 0;  // multiply-adds of f32 in a second at the highest clock, twice; 0: unknown
  bool is_cpu = false;
  absl::Status
      exact;  // FAILED_PRECONDITION, saying what its f32 arithmetic lacks to be everybody's
};

// FAILED_PRECONDITION, saying what is missing, for a device that kernels cannot run on.
absl::StatusOr<DeviceFacts> ReadFacts(const Library& library, const PlatformDevice& device);

}  // namespace telegrad::opencl
