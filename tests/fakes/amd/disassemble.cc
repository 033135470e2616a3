// Disassembles a section of code for one processor and wavefront size, instruction by
// instruction. Bytes that are no instruction are an error with their offset.
#include "tests/fakes/amd/disassemble.h"

#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>

#include <mutex>

namespace fakeamd {
namespace {

void InitializeTarget() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
  });
}

}  // namespace

std::vector<Line> Disassemble(const std::string& processor, uint32_t wavefront,
                              std::span<const uint8_t> code, uint64_t address, std::string* error) {
  InitializeTarget();
  const std::string features = "+wavefrontsize" + std::to_string(wavefront);
  LLVMDisasmContextRef context = LLVMCreateDisasmCPUFeatures(
      "amdgcn-amd-amdhsa", processor.c_str(), features.c_str(), nullptr, 0, nullptr, nullptr);
  if (context == nullptr) {
    *error = "there is no disassembler for " + processor;
    return {};
  }
  std::vector<Line> lines;
  std::vector<uint8_t> bytes(code.begin(), code.end());
  for (size_t at = 0; at < bytes.size();) {
    char text[512] = "";
    const size_t size = LLVMDisasmInstruction(context, bytes.data() + at, bytes.size() - at,
                                              address + at, text, sizeof(text));
    if (size == 0) {
      *error = "no instruction of " + processor + " at byte " + std::to_string(at) + " of the code";
      lines.clear();
      break;
    }
    lines.push_back({.address = address + at, .bytes = static_cast<uint32_t>(size), .text = text});
    at += size;
  }
  LLVMDisasmDispose(context);
  return lines;
}

}  // namespace fakeamd
