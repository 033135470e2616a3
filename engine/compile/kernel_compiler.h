// Who compiles kernels: this process, or a pool of worker processes (compile_pool.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/compile/compiler.h"
#include "engine/types/target.h"

namespace telegrad {

// Thread-safe; calls run in parallel as far as the implementation goes.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;

  // As Compile of compiler.h. INTERNAL, naming the kernel, also where the compiler itself fails on
  // it. Ends early with the budget's error when its time is up or its job cancelled.
  virtual absl::StatusOr<ProgramImage> Compile(const std::string& source, const std::string& name,
                                               const Target& target, Budget* budget) = 0;

  // Which compiler this is, in one line: equal text means that equal input gives equal code. Empty
  // if that is unknown.
  virtual const std::string& identity() const = 0;
};

// Compiles in the calling thread: a defect of the compiler ends the process.
std::unique_ptr<KernelCompiler> CompileInProcess(const CompilerOptions& options = {});

}  // namespace telegrad
