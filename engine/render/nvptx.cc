// What PTX calls things: special registers, and the shape that every launch must have.
#include "engine/render/nvptx.h"

#include <algorithm>

namespace telegrad {
namespace {

// As many workgroups as local memory lets a multiprocessor have at once, where its registers
// suffice for them: ptxas is not told how much memory a launch gives, and stores registers to
// make room for workgroups that cannot come. 0: it may choose. Of four warps and more it keeps all
// values by itself, and told so it gives some products more registers than there are. CUDA C++
// Programming Guide, "Compute Capabilities": 65,536 registers; each workgroup takes 1 KiB of local
// memory more.
int64_t ResidentWorkgroups(int64_t threads, int64_t bytes, int64_t most_bytes) {
  constexpr int64_t kRegisters = 65536, kReserved = 1024, kFew = 112, kMost = 255;
  constexpr int64_t kFourWarps = 128;
  const int64_t fit = most_bytes / (bytes + kReserved);
  if (bytes == 0 || threads >= kFourWarps || fit * threads * kFew > kRegisters) return 0;
  return std::max<int64_t>(1, std::min(fit, kRegisters / (threads * kMost)));
}

}  // namespace

std::string NvptxKernel::ThreadNumber() {
  return out_.Call("llvm.nvvm.read.ptx.sreg.tid.x", "i32", {});
}

std::string NvptxKernel::WorkgroupNumber() {
  return out_.Call("llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", {});
}

std::string NvptxKernel::Metadata() const {
  std::string facts = StrCat("ptr @", program_.name, ", !\"reqntidx\", i32 ", threads());
  const int64_t resident = ResidentWorkgroups(threads(), local_bytes(), target_.local_bytes);
  if (resident > 0) StrAppend(&facts, ", !\"minctasm\", i32 ", resident);
  return StrCat("!nvvm.annotations = !{!0}\n!0 = !{", facts, "}\n");
}

}  // namespace telegrad
