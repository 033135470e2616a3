// Runs NVIDIA's assembler, where it is installed, and returns the code of a kernel with the
// registers, spills and stack that it reports.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace telegrad::testing {

// From the variable TELEGRAD_PTXAS, PATH, or CUDA's usual place; empty where there is none.
std::string FindPtxas();

struct Assembled {
  int64_t registers = -1;                       // of a thread
  int64_t spill_stores = -1, spill_loads = -1;  // bytes
  int64_t stack = -1;                           // bytes
  int64_t barriers = 0;
  std::string code;  // the ELF file
};

// INTERNAL with what the assembler says.
absl::StatusOr<Assembled> Assemble(const std::string& ptxas, const std::string& ptx,
                                   const std::string& arch);

}  // namespace telegrad::testing
