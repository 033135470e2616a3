// Assembles PTX text to kernels for one device, with the errors and the log of the driver's
// compiler.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/fakes/cuda/ptx/code.h"
#include "tests/fakes/cuda/ptx/module.h"

namespace fakecuda {

enum class AssembleError : int {
  kNone = 0,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
};

struct Machine {
  int major = 9;
  int minor = 0;
  int ptx_version = 85;  // newest that it takes, 10 * major + minor
};

struct Assembly {
  AssembleError error = AssembleError::kNone;
  std::string log;
  Module module;
  std::vector<Kernel> kernels;
};

// Reads the text; on success only `module` is set.
Assembly ReadModule(std::string_view text, const Machine& machine);
// Makes the kernels of a module that was read, with its global variables at address `globals`.
void MakeKernels(uint64_t globals, Assembly* assembly);

}  // namespace fakecuda
