// Which build this process is: what cached code is keyed by besides its source and its target.
#pragma once

#include <string>

namespace telegrad {

// The linker's build id of the executable: another one for any change of any of its sources,
// compiler options or static libraries. Of an executable with shared libraries of this project, the
// SHA-256 of all their ids. Empty if it was linked without one.
const std::string& ExecutableBuildId();

// The version and build id of the LLVM that this process has loaded, and ExecutableBuildId. Empty
// if that is empty.
const std::string& CompilerIdentity();

}  // namespace telegrad
