// Loads that are the same for all lanes of a wave, on AMD's GPUs.
#pragma once

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace telegrad {

// Keeps three neighbours of 32 bits that all lanes of a wave load from being one load. To be called
// behind LLVM's optimizer.
void SplitUniformLoads(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace telegrad
