// The metadata of a code object: LLVM's "User Guide for AMDGPU Backend", "Code Object V5 Metadata".
#pragma once

#include <string>
#include <vector>

#include "tests/fakes/amd/amd_machine.h"

namespace fakeamd {

struct Metadata {
  std::string error;  // not empty: what cannot be read
  std::string target;
  std::vector<Kernel> kernels;
  std::vector<std::string> symbols;  // of the kernels' descriptors
};

// Reads the message pack of the note.
Metadata ReadMetadata(const std::string& bytes);

}  // namespace fakeamd
