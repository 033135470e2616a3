// LLVM 19 changes the results of floats that are rounded to half in two cases:
//
// - A quotient of floats that were halves becomes a quotient of halves, which is approximated
//   (v_rcp_f16, or v_rcp_f32 and a product) and not always the nearest half.
// - A product becomes one instruction that adds +0 (v_fma_mixlo_f16), so that -0 becomes +0
//   (llvm-project, pull request 214544, fixes it).
//
// LLVM recognizes neither pattern if an operation that keeps the value is inserted before the
// rounding. The code generator removes that operation after arithmetic; after a load it takes one
// instruction.
#include "engine/compile/halves.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"

namespace telegrad {
namespace {

bool IsKept(const llvm::Value* value) {
  const auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(value);
  return call != nullptr && call->getIntrinsicID() == llvm::Intrinsic::canonicalize;
}

bool IsQuotient(const llvm::Value* value) {
  const auto* const operation = llvm::dyn_cast<llvm::Instruction>(value);
  return operation != nullptr && operation->getOpcode() == llvm::Instruction::FDiv;
}

// Puts the operation behind what is rounded from float to half, if `which` says so.
void Keep(llvm::Module& module, bool (*which)(const llvm::Value*)) {
  for (llvm::Function& function : module) {
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      auto* const rounding = llvm::dyn_cast<llvm::FPTruncInst>(&instruction);
      if (rounding == nullptr || !rounding->getSrcTy()->getScalarType()->isFloatTy() ||
          !rounding->getDestTy()->getScalarType()->isHalfTy() || !which(rounding->getOperand(0))) {
        continue;
      }
      llvm::IRBuilder<> builder(rounding);
      rounding->setOperand(
          0, builder.CreateUnaryIntrinsic(llvm::Intrinsic::canonicalize, rounding->getOperand(0)));
    }
  }
}

}  // namespace

void KeepQuotientsWide(llvm::Module& module) { Keep(module, IsQuotient); }

void KeepSignsOfZero(llvm::Module& module) {
  Keep(module, [](const llvm::Value* value) { return !IsKept(value); });
}

}  // namespace telegrad
