// telegrad-compile-worker: compiles kernels for the telegradd that started it, in a process of its
// own, so that a defect of LLVM costs one kernel. The daemon sets its limits (worker_process.cc).
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "engine/base/version.h"
#include "engine/compile/compile_worker.h"
#include "engine/compile/worker_protocol.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("telegrad-compile-worker %s\n", std::string(telegrad::Version()).c_str());
    return 0;
  }
  int type;
  socklen_t size = sizeof(type);
  if (getsockopt(telegrad::kWorkerSocket, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr, "telegrad-compile-worker: telegradd starts this program for itself\n");
    return 2;
  }
  // It dies with the thread that started it, also in the midst of a compilation. Should that be
  // gone already, the socket is closed and the first read ends the process.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const telegrad::CompilerOptions options{.opencl_library = std::string(argc == 2 ? argv[1] : "")};
  return telegrad::ServeCompiles(telegrad::kWorkerSocket, options);
}
