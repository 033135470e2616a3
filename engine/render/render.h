// A program as the text that its target's compiler takes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/ir/program.h"
#include "engine/types/target.h"

namespace telegrad {

// In the C dialect of the target's architecture, where c_dialects.def has a row for it (the kernel
// is described in c_kernel.h), else as LLVM IR; with the same promises, see llvm.h.
absl::StatusOr<std::string> Render(const Program& program, const Target& target);

}  // namespace telegrad
