// What a launch of a kernel needs, read from the linked code object, because HIP has no function
// that tells it. Facts: LLVM's "User Guide for AMDGPU Backend", "ELF Code Object" and "Kernel
// Descriptor".
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace telegrad::hip {

struct KernelFacts {
  uint32_t local_bytes = 0;     // of a workgroup, fixed
  uint32_t stack_bytes = 0;     // of a thread
  uint32_t argument_bytes = 0;  // of all
  // Of the GPU's memory, for the whole code object: up to the end of its last segment, for which
  // ROCm's loader makes one allocation (ExecutableImpl::LoadSegmentsV2 of ROCR-Runtime).
  int64_t loaded_bytes = 0;
};

// Of the kernel `name`. INVALID_ARGUMENT for what is no code object of AMD's, or has no such
// kernel; nothing is read beyond `elf`, and `elf` is as long as its headers say, which the driver
// believes.
absl::StatusOr<KernelFacts> ReadKernel(std::string_view elf, std::string_view name);

}  // namespace telegrad::hip
