#include "engine/execution/executable.h"

namespace telegrad {

int64_t Executable::kept_bytes() const {
  auto bytes = static_cast<int64_t>(sizeof(Executable) + slots().size_bytes());
  for (const KernelInfo& kernel : kernels()) {
    bytes += static_cast<int64_t>(sizeof(kernel) + kernel.name.size() +
                                  kernel.arguments.size() * sizeof(KernelArgument));
    for (const std::string& reason : kernel.reasons) {
      bytes += static_cast<int64_t>(sizeof(reason) + reason.size());
    }
  }
  return bytes;
}

}  // namespace telegrad
