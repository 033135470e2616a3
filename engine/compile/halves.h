// Floats that are rounded to halves: what LLVM 19 does with them and should not.
#pragma once

namespace llvm {
class Module;
}

namespace telegrad {

// On AMD's GPUs. Lets quotients that are rounded to half stay quotients of floats. To be called
// before LLVM's optimizer.
void KeepQuotientsWide(llvm::Module& module);

// On AMD's GPUs. Lets products that are rounded to half keep the sign of zero. To be called last,
// before the code generator.
void KeepSignsOfZero(llvm::Module& module);

// On processors without arithmetic of halves. Lets the larger and the smaller of two halves be
// found as floats. To be called last, before the code generator.
void FindLargerAsFloats(llvm::Module& module);

}  // namespace telegrad
