// LLVM 19 changes the results of floats that are rounded to half in two cases:
//
// - A quotient of floats that were halves becomes a quotient of halves, which is approximated
//   (v_rcp_f16, or v_rcp_f32 and a product) and not always the nearest half.
// - A product becomes one instruction that adds +0 (v_fma_mixlo_f16), so that -0 becomes +0
//   (llvm-project, pull request 214544, fixes it).
//
// LLVM recognizes neither of these patterns if an operation that keeps the value is inserted before
// the rounding. The code generator removes that operation after arithmetic; after a load it takes
// one instruction.
//
// On x86-64, the larger of two floats that were halves becomes the larger of two halves, for which
// the code generator compares element by element, and loses NaN in vectors. So it becomes one of
// floats again.
#include "engine/compile/halves.h"

#include <vector>

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
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

void FindLargerAsFloats(llvm::Module& module) {
  std::vector<llvm::IntrinsicInst*> found;
  for (llvm::Function& function : module) {
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
      if (call == nullptr || !call->getType()->getScalarType()->isHalfTy()) continue;
      const llvm::Intrinsic::ID id = call->getIntrinsicID();
      if (id == llvm::Intrinsic::maximum || id == llvm::Intrinsic::minimum) found.push_back(call);
    }
  }
  llvm::MapVector<llvm::Value*, llvm::Value*> floats;  // by the half that each is rounded to
  for (llvm::IntrinsicInst* call : found) {
    llvm::IRBuilder<> builder(call);
    llvm::Type* const wide = call->getType()->getWithNewType(builder.getFloatTy());
    llvm::Value* operands[2];
    for (unsigned i = 0; i < 2; ++i) {
      llvm::Value* const half = call->getArgOperand(i);
      const auto known = floats.find(half);
      operands[i] = known != floats.end() ? known->second : builder.CreateFPExt(half, wide);
    }
    llvm::Value* const larger =
        builder.CreateBinaryIntrinsic(call->getIntrinsicID(), operands[0], operands[1]);
    llvm::Value* const half = builder.CreateFPTrunc(larger, call->getType());
    floats[half] = larger;
    call->replaceAllUsesWith(half);
    call->eraseFromParent();
  }
  for (const auto& [half, larger] : floats) {
    for (llvm::User* user : llvm::make_early_inc_range(half->users())) {
      auto* const extension = llvm::dyn_cast<llvm::FPExtInst>(user);
      if (extension != nullptr && extension->getType() == larger->getType()) {
        extension->replaceAllUsesWith(larger);
      }
    }
  }
}

void KeepQuotientsWide(llvm::Module& module) { Keep(module, IsQuotient); }

void KeepSignsOfZero(llvm::Module& module) {
  Keep(module, [](const llvm::Value* value) { return !IsKept(value); });
}

}  // namespace telegrad
