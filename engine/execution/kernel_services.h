// Optional services for compiling kernels: the daemon provides worker processes, a folder on disk
// and a handler for failures; most tests provide none.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/compile/kernel_compiler.h"
#include "engine/execution/found_moves.h"
#include "engine/execution/kernel_heat.h"
#include "engine/execution/kernel_store.h"

namespace telegrad {

// A kernel that failed through a defect of Telegrad and not of its graph: an INTERNAL error of
// lowering, the renderer, the compiler or the loader.
struct FailedKernel {
  std::string name;
  absl::Status status;
  // A file for telegrad-opt: the kernel as text, below comments that say what failed and how to
  // repeat it, and the flags that repeat it.
  std::string reproducer;
  std::string replay_flags;
};

struct KernelServices {
  std::shared_ptr<KernelCompiler> compiler;  // null: this process compiles
  std::shared_ptr<KernelStore> store;        // null: nothing is kept on disk
  std::function<void(const FailedKernel&)> on_failure;
  std::shared_ptr<FoundMoves> found = nullptr;  // null: the heuristics' moves are used
  std::shared_ptr<KernelHeat> heat = nullptr;   // null: device time of kernels is not counted
};

}  // namespace telegrad
