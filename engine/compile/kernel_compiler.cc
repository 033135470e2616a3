#include "engine/compile/kernel_compiler.h"

#include "engine/base/status.h"
#include "engine/compile/build_identity.h"
#include "engine/compile/compiler.h"

namespace telegrad {
namespace {

class InProcess final : public KernelCompiler {
 public:
  explicit InProcess(CompilerOptions options) : options_(std::move(options)) {}

  absl::StatusOr<ProgramImage> Compile(const std::string& source, const std::string& name,
                                       const Target& target, Budget* budget) override {
    TG_RETURN_IF_ERROR(budget->CheckTime());
    return telegrad::Compile(source, name, target, options_);
  }
  const std::string& identity() const override { return CompilerIdentity(); }

 private:
  const CompilerOptions options_;
};

}  // namespace

std::unique_ptr<KernelCompiler> CompileInProcess(const CompilerOptions& options) {
  return std::make_unique<InProcess>(options);
}

}  // namespace telegrad
