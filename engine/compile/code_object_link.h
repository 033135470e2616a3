// AMD's loader takes linked code objects, and LLVM's code generator makes relocatable ones.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace telegrad {

// The relocatable object `object` of an AMD GPU as a shared object that HIP loads, by lld in this
// process. INTERNAL with what lld says, UNIMPLEMENTED in a build without lld. Thread-safe, though
// lld links one object at a time.
absl::StatusOr<std::string> LinkCodeObject(const std::string& object);

}  // namespace telegrad
