#include "engine/render/render.h"

#include "engine/render/c_kernel.h"
#include "engine/render/llvm.h"

namespace telegrad {

absl::StatusOr<std::string> Render(const Program& program, const Target& target) {
  if (const CDialect* dialect = FindCDialect(target.arch)) {
    return CKernel(program, target, *dialect).Render();
  }
  return RenderLlvm(program, target);
}

}  // namespace telegrad
