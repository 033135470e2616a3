// Which processor the text is for: a row per architecture.
#include "engine/render/llvm.h"

#include <memory>

#include "engine/base/status.h"
#include "engine/render/amdgpu.h"
#include "engine/render/llvm_kernel.h"
#include "engine/render/llvm_x86.h"
#include "engine/render/nvptx.h"

namespace telegrad {
namespace {

template <typename Kernel>
std::unique_ptr<LlvmKernel> Make(const Program& program, const Target& target) {
  return std::make_unique<Kernel>(program, target);
}

struct Row {
  std::string_view arch;
  std::unique_ptr<LlvmKernel> (*make)(const Program& program, const Target& target);
};

constexpr Row kRows[] = {
    {"x86-64", Make<X86Kernel>},
    {"sm_80", Make<NvptxKernel>},
    {"sm_90a", Make<NvptxKernel>},
#define AMD_PROCESSOR(name, ...) {#name, Make<AmdgpuKernel>},
#include "engine/types/amd_processors.def"
#undef AMD_PROCESSOR
};

}  // namespace

absl::StatusOr<std::string> RenderLlvm(const Program& program, const Target& target) {
  for (const Row& row : kRows) {
    if (row.arch == target.arch) return row.make(program, target)->Render();
  }
  std::string known;
  for (const Row& row : kRows) StrAppend(&known, known.empty() ? "" : ", ", row.arch);
  return Unimplemented("no LLVM rendering for the architecture ", target.arch, "; expected one of ",
                       known);
}

}  // namespace telegrad
