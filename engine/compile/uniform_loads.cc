// LLVM 19's code generator joins loads of neighbours (LoadStoreVectorizer). Three of 32 bits, at an
// address that is the same for all lanes, become a scalar load of 96 bits, also for processors that
// have none, and the code generator then ends the process (BranchRelaxation asks how long it is).
// What would be joined is found in a copy of the module. In one that has such a load the joining is
// done here, and the third neighbour becomes an atomic load without an order, which is the same
// instruction by itself and is not joined again.
#include "engine/compile/uniform_loads.h"

#include <memory>
#include <vector>

#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Analysis/UniformityAnalysis.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Vectorize/LoadStoreVectorizer.h"

namespace telegrad {
namespace {

constexpr unsigned kLocalSpace = 3;

// Joins loads, and gives those of three elements that are the same for all lanes.
std::vector<llvm::LoadInst*> JoinLoads(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  std::vector<llvm::LoadInst*> found;
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    llvm::FunctionPassManager passes;
    passes.addPass(llvm::LoadStoreVectorizerPass());
    functions.invalidate(function, passes.run(function, functions));
    const llvm::UniformityInfo& uniform =
        functions.getResult<llvm::UniformityInfoAnalysis>(function);
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      auto* const load = llvm::dyn_cast<llvm::LoadInst>(&instruction);
      if (load == nullptr || load->getPointerAddressSpace() == kLocalSpace) continue;
      const auto* const type = llvm::dyn_cast<llvm::FixedVectorType>(load->getType());
      const bool three =
          type != nullptr && type->getNumElements() == 3 && type->getScalarSizeInBits() == 32;
      if (three && !uniform.isDivergent(load->getPointerOperand())) found.push_back(load);
    }
  }
  return found;
}

void Split(llvm::LoadInst* load) {
  llvm::IRBuilder<> builder(load);
  auto* const whole = llvm::cast<llvm::FixedVectorType>(load->getType());
  llvm::Type* const element = whole->getElementType();
  auto* const pair = llvm::FixedVectorType::get(element, 2);
  llvm::Value* const from = load->getPointerOperand();
  llvm::LoadInst* const first = builder.CreateAlignedLoad(pair, from, load->getAlign());
  first->copyMetadata(*load);
  llvm::Value* const at = builder.CreateConstInBoundsGEP1_64(element, from, 2);
  llvm::LoadInst* const third = builder.CreateAlignedLoad(element, at, llvm::Align(4));
  third->setAtomic(llvm::AtomicOrdering::Unordered, llvm::SyncScope::SingleThread);
  llvm::Value* joined = builder.CreateShuffleVector(first, {0, 1, -1});
  joined = builder.CreateInsertElement(joined, third, uint64_t{2});
  load->replaceAllUsesWith(joined);
  load->eraseFromParent();
}

}  // namespace

void SplitUniformLoads(llvm::Module& module, llvm::TargetMachine& machine) {
  const std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
  if (JoinLoads(*copy, machine).empty()) return;
  for (llvm::LoadInst* load : JoinLoads(module, machine)) Split(load);
}

}  // namespace telegrad
