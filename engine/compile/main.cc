// telegrad-compile-worker: compiles kernels for the telegradd that started it, in a process of its
// own, so that a defect of LLVM costs one kernel. The daemon sets its limits (worker_process.cc).
#include <cstdio>
#include <string>
#include <string_view>

#include "engine/base/version.h"
#include "engine/compile/compile_worker.h"
#include "engine/compile/find_assembler.h"
#include "engine/process/child_process.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("telegrad-compile-worker %s\n", std::string(telegrad::Version()).c_str());
    return 0;
  }
  constexpr char kUse[] = "telegrad-compile-worker: telegradd starts this program by itself\n";
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUse, stdout);
    return 0;
  }
  if (argc == 4 && std::string_view(argv[1]) == telegrad::kTryNvJitLink) {
    const auto found = telegrad::TryNvJitLinkHere(argv[2], argv[3]);
    const std::string said = found.ok() ? *found : std::string(found.status().message());
    std::printf("%s\n", said.c_str());
    return found.ok() ? 0 : 1;
  }
  if (!telegrad::BeginAsChild()) {
    std::fputs(kUse, stderr);
    return 2;
  }
  const telegrad::CompilerOptions options{.opencl_library = std::string(argc == 2 ? argv[1] : "")};
  return telegrad::ServeCompiles(telegrad::kChildSocket, options);
}
