// Floats that are rounded to halves, on AMD's GPUs.
#pragma once

namespace llvm {
class Module;
}

namespace telegrad {

// Lets quotients that are rounded to half stay quotients of floats. To be called before LLVM's
// optimizer.
void KeepQuotientsWide(llvm::Module& module);

// Lets products that are rounded to half keep the sign of zero. To be called last, before the code
// generator.
void KeepSignsOfZero(llvm::Module& module);

}  // namespace telegrad
