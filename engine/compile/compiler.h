// Rendered text to code: LLVM IR to that of the processor this runs on, to PTX or to AMD's code
// objects, and OpenCL C to what an OpenCL driver makes of it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/compile/ptxas.h"
#include "engine/types/target.h"

namespace telegrad {

// The processor that this process runs on: every feature it has and LLVM knows how to use.
// `threads` below 1 means as many as the hardware has.
Target HostTarget(int threads);

// OK where it makes a cubin for `arch` of a kernel that this compiler wrote; else what is missing.
absl::Status TryAssembler(const Assembler& assembler, const std::string& arch);

struct CompilerOptions {
  std::string opencl_library = "libOpenCL.so.1";  // by which OpenCL C is compiled; none for ""
};

// Parses, verifies and optimizes `source`, LLVM IR whose function `name` is the entry point, and
// returns it as code of the target: for x86-64 a position-independent, relocatable ELF object, for
// NVIDIA's architectures PTX, for AMD's a linked code object, with the signature that the text
// states (kernel_attributes.h). OpenCL C goes to
// the driver of the device that the target names (engine/opencl/build.h). INTERNAL, naming the
// kernel, if the compiler rejects it: the text comes from a renderer, so that is never a client's
// fault. RESOURCE_EXHAUSTED for text over kMaxIrBytes.
//
// Thread-safe; calls run in parallel. A defect in LLVM itself can still end the process: who must
// survive that calls this in a process of its own.
absl::StatusOr<ProgramImage> Compile(const std::string& source, const std::string& name,
                                     const Target& target, const CompilerOptions& options = {});

// The same code as assembly text, for people to read. Not for OpenCL C.
absl::StatusOr<std::string> CompileToAssembly(const std::string& source, const std::string& name,
                                              const Target& target);

inline constexpr size_t kMaxIrBytes = size_t{16} << 20;
absl::Status CheckIrSize(const std::string& source, const std::string& name);

}  // namespace telegrad
