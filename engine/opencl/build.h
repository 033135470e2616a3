// OpenCL C to a binary, by the compiler of the driver itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/opencl/library.h"
#include "engine/types/program_signature.h"
#include "engine/types/target.h"

namespace telegrad::opencl {

struct Built {
  std::string binary;
  GridSize group;  // threads of a workgroup, as the kernel itself says
};

// The kernel `name` of `source` for the device that `target` names: NOT_FOUND if the loader at
// `library` shows none of that name any more. INTERNAL, with the driver's log, if it does not take
// the source: that comes from a renderer.
//
// Thread-safe. A driver's compiler can crash: who must survive that calls this in a process of its
// own.
absl::StatusOr<Built> Build(const std::string& library, const std::string& source,
                            const std::string& name, const Target& target);

// What a program of the driver is built with, from source and from binary.
inline constexpr char kBuildOptions[] = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

// What the driver says of the last build.
std::string LogOf(const Library& library, cl_program program, cl_device_id device);

}  // namespace telegrad::opencl
