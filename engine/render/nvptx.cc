// What PTX calls things: special registers, and the shape that every launch must have.
#include "engine/render/nvptx.h"

namespace telegrad {

std::string NvptxKernel::ThreadNumber() {
  return out_.Call("llvm.nvvm.read.ptx.sreg.tid.x", "i32", {});
}

std::string NvptxKernel::WorkgroupNumber() {
  return out_.Call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", {});
}

std::string NvptxKernel::Metadata() const {
  return StrCat("!nvvm.annotations = !{!0}\n!0 = !{ptr @", program_.name, ", !\"reqntidx\", i32 ",
                threads(), "}\n");
}

}  // namespace telegrad
