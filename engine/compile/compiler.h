// LLVM IR to machine code: of the processor this runs on, or PTX.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/types/target.h"

namespace telegrad {

// The processor that this process runs on: every feature it has and LLVM knows how to use.
// `threads` below 1 means as many as the hardware has.
Target HostTarget(int threads);

// Parses, verifies and optimizes `llvm_ir`, whose function `name` is the entry point, and returns
// it as code of the target: for x86-64 a position-independent, relocatable ELF object, for NVIDIA's
// architectures PTX, with what its launch needs (kernel_attributes.h). INTERNAL, naming the kernel,
// if LLVM rejects it: the text comes from a renderer, so that is never a client's fault.
// RESOURCE_EXHAUSTED for text over kMaxIrBytes.
//
// Thread-safe; calls run in parallel. A defect in LLVM itself can still end the process: who must
// survive that calls this in a process of its own.
absl::StatusOr<ProgramImage> Compile(const std::string& llvm_ir, const std::string& name,
                                     const Target& target);

inline constexpr size_t kMaxIrBytes = size_t{16} << 20;
absl::Status CheckIrSize(const std::string& llvm_ir, const std::string& name);

}  // namespace telegrad
