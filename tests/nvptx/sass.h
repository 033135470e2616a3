// Counts the instructions of an assembled kernel. An instruction is 16 bytes; its lowest 12 bits
// say what it is (as `nvdisasm` shows for sm_80 and sm_90; the codes that are of interest here
// are named below).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace telegrad::testing {

namespace sass {
inline constexpr int kHmma = 0x23c;               // matrix product of a warp
inline constexpr int kHgmma = 0x9f0;              // of a warpgroup
inline constexpr int kLdsm = 0x83b;               // matrices from shared memory
inline constexpr int kLdgsts = 0xfae;             // asynchronous copy from global to shared memory
inline constexpr int kLdl = 0x983, kStl = 0x387;  // registers that did not suffice
}  // namespace sass

// By code, of the kernel `name` in an ELF file. NOT_FOUND where it is not in there.
absl::StatusOr<std::map<int, int>> CountInstructions(const std::string& elf,
                                                     const std::string& name);

}  // namespace telegrad::testing
