#include "engine/compile/kernel_compiler.h"

#include "engine/base/status.h"
#include "engine/compile/build_identity.h"
#include "engine/compile/compiler.h"

namespace telegrad {
namespace {

class InProcess final : public KernelCompiler {
 public:
  absl::StatusOr<ProgramImage> Compile(const std::string& llvm_ir, const std::string& name,
                                       const Target& target, Budget* budget) override {
    TG_RETURN_IF_ERROR(budget->CheckTime());
    return telegrad::Compile(llvm_ir, name, target);
  }
  const std::string& identity() const override { return CompilerIdentity(); }
};

}  // namespace

std::unique_ptr<KernelCompiler> CompileInProcess() { return std::make_unique<InProcess>(); }

}  // namespace telegrad
