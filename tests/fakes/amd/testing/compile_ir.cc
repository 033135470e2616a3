// Compiles LLVM IR with LLVM's code generator for AMDGPU, and links the object as the compiler
// of the engine does.
#include "tests/fakes/amd/testing/compile_ir.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IRReader/IRReader.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <mutex>

#include "engine/compile/code_object_link.h"

extern "C" {
void LLVMInitializeAMDGPUTarget();
void LLVMInitializeAMDGPUTargetInfo();
void LLVMInitializeAMDGPUTargetMC();
void LLVMInitializeAMDGPUAsmPrinter();
void LLVMInitializeAMDGPUAsmParser();
}

namespace fakeamd {
namespace {

constexpr char kTriple[] = "amdgcn-amd-amdhsa";

}  // namespace

std::vector<uint8_t> CompileIr(const std::string& ir, const std::string& processor,
                               std::string* error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmPrinter();
    LLVMInitializeAMDGPUAsmParser();
  });
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  const auto module = llvm::parseIR(llvm::MemoryBufferRef(ir, "test"), diagnostic, context);
  if (module == nullptr) {
    *error = "line " + std::to_string(diagnostic.getLineNo()) + ": " +
             diagnostic.getMessage().str() + ": " + diagnostic.getLineContents().str();
    return {};
  }
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, *error);
  if (target == nullptr) return {};
  const std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(kTriple, processor, "", llvm::TargetOptions(), llvm::Reloc::PIC_,
                                  std::nullopt, llvm::CodeGenOptLevel::Default));
  module->setTargetTriple(kTriple);
  module->setDataLayout(machine->createDataLayout());
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    *error = "this target emits no objects";
    return {};
  }
  passes.run(*module);
  const auto linked = telegrad::LinkCodeObject(std::string(object.data(), object.size()));
  if (!linked.ok()) {
    *error = linked.status().ToString();
    return {};
  }
  return {linked->begin(), linked->end()};
}

std::string KernelIr(const std::string& name, const std::string& parameters,
                     const std::string& body, int threads) {
  const std::string count = std::to_string(threads);
  return "define amdgpu_kernel void @" + name + "(" + parameters + ") #0 {\n" + body +
         "\n}\n"
         "declare i32 @llvm.amdgcn.workgroup.id.x()\n"
         "declare i32 @llvm.amdgcn.workitem.id.x()\n"
         "declare void @llvm.amdgcn.s.barrier()\n"
         "attributes #0 = { nounwind \"amdgpu-flat-work-group-size\"=\"" +
         count + "," + count +
         "\" \"uniform-work-group-size\"=\"true\" \"amdgpu-implicitarg-num-bytes\"=\"0\""
         " \"denormal-fp-math-f32\"=\"ieee,ieee\""
         " \"amdgpu-no-workgroup-id-y\" \"amdgpu-no-workgroup-id-z\" \"amdgpu-no-workitem-id-y\""
         " \"amdgpu-no-workitem-id-z\" \"amdgpu-no-dispatch-ptr\" \"amdgpu-no-queue-ptr\""
         " \"amdgpu-no-implicitarg-ptr\" \"amdgpu-no-dispatch-id\" }\n";
}

}  // namespace fakeamd
