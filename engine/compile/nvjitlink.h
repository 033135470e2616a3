// NVIDIA's linker of code for GPUs, libnvJitLink, a library that is opened at run time and makes a
// cubin of PTX inside of the process: that of a compile worker, because it is as large as a
// compiler and may crash as one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/compile/ptxas.h"

namespace telegrad {

// The first of `libraries`, names or paths separated by colons, that can be opened; it stays open.
// NOT_FOUND says why none can, FAILED_PRECONDITION what is missing in the one that was opened.
absl::StatusOr<Assembler> FindNvJitLink(std::string_view libraries);

// As AssemblePtx. UNAVAILABLE where the library cannot be opened.
absl::StatusOr<std::string> LinkPtx(const std::string& library, const std::string& ptx,
                                    const std::string& arch, const std::string& kernel);

}  // namespace telegrad
