// LLVM 19's code generator does not know that the matrix instructions of RDNA are executed by all
// lanes together (MFMA are marked as convergent, WMMA are not): where only the lanes of a gate use
// a result, as those that store a column of the matrix, it moves the instruction behind the gate.
// Nothing moves what is computed from the result by an empty piece of assembler that is convergent,
// so the result is needed where it stands.
#include "engine/compile/whole_waves.h"

#include <algorithm>
#include <vector>

#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"

namespace telegrad {
namespace {

bool IsMatrixOperation(const llvm::Value* value) {
  const auto* const call = llvm::dyn_cast<llvm::CallInst>(value);
  const llvm::Function* const callee = call == nullptr ? nullptr : call->getCalledFunction();
  return callee != nullptr && callee->getName().starts_with("llvm.amdgcn.wmma.");
}

// Whether something in its block that stays there needs it: a value of the next iteration, or
// another such operation.
bool Stays(const llvm::Instruction& operation) {
  return std::ranges::any_of(operation.users(), [&](const llvm::User* user) {
    const auto* const instruction = llvm::dyn_cast<llvm::Instruction>(user);
    return instruction != nullptr && instruction->getParent() == operation.getParent() &&
           (llvm::isa<llvm::PHINode>(instruction) || IsMatrixOperation(instruction));
  });
}

void Hold(llvm::Instruction* operation) {
  llvm::Type* const type = operation->getType();
  llvm::InlineAsm* const nothing =
      llvm::InlineAsm::get(llvm::FunctionType::get(type, {type}, /*isVarArg=*/false), "", "=v,0",
                           /*hasSideEffects=*/false);
  llvm::CallInst* const held = llvm::CallInst::Create(nothing, {operation}, "");
  held->setConvergent();
  held->setDoesNotAccessMemory();
  held->setDoesNotThrow();
  held->insertAfter(operation);
  operation->replaceUsesWithIf(held, [&](const llvm::Use& use) { return use.getUser() != held; });
}

}  // namespace

void KeepWavesWhole(llvm::Module& module) {
  for (llvm::Function& function : module) {
    std::vector<llvm::Instruction*> held;
    for (llvm::Instruction& i : llvm::instructions(function)) {
      if (IsMatrixOperation(&i) && !Stays(i)) held.push_back(&i);
    }
    for (llvm::Instruction* operation : held) Hold(operation);
  }
}

}  // namespace telegrad
