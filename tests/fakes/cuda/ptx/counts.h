// What a launch did, counted: instructions of warps by their kind, and how its accesses suit the
// memories.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fakecuda {

enum class InstructionKind : uint8_t {
#define KIND(name, meaning) name,
#include "tests/fakes/cuda/ptx/kinds.def"
#undef KIND
};
inline constexpr size_t kInstructionKinds =
    static_cast<size_t>(InstructionKind::other_instructions) + 1;

struct LaunchCounts {
  std::array<uint64_t, kInstructionKinds> instructions = {};  // of warps
  uint64_t load_conflicts = 0;   // cycles of shared memory beyond what the bytes take (banks.h)
  uint64_t store_conflicts = 0;  // the same of stores and asynchronous copies
  uint64_t global_bytes = 0;     // that threads ask for
  uint64_t global_sectors = 0;   // of 32 bytes, that the instructions of warps touch
};

// By the text of an instruction, such as "ld.shared.u32".
InstructionKind KindOf(std::string_view opcode);

}  // namespace fakecuda
