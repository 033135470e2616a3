// Instructions that all lanes of a wave execute together, on AMD's GPUs.
#pragma once

namespace llvm {
class Module;
}

namespace telegrad {

// Lets matrix instructions stay where all lanes execute them. To be called behind LLVM's optimizer.
void KeepWavesWhole(llvm::Module& module);

}  // namespace telegrad
