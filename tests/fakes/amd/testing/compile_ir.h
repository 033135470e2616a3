// Test code objects: LLVM IR (which may hold assembly, as module asm) compiled for a processor in
// this process and linked by lld.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fakeamd {

// The linked object; empty, with the reason, where something does not work.
std::vector<uint8_t> CompileIr(const std::string& ir, const std::string& processor,
                               std::string* error);

// The IR of `define amdgpu_kernel void @name(parameters) { body }` with what it may call and the
// attributes that the renderer gives to kernels with `threads` threads.
std::string KernelIr(const std::string& name, const std::string& parameters,
                     const std::string& body, int threads);

}  // namespace fakeamd
