// telegrad-device-worker: runs kernels, or hosts the driver of a GPU, for the telegradd that
// started it, in a process of its own, so that a fault costs the work that it was running. See
// docs/isolation.md.
#include <cstdio>
#include <string>
#include <string_view>

#include "devices/drivers.h"
#include "devices/hosted/serve_driver.h"
#include "devices/worker/serve.h"
#include "engine/base/version.h"
#include "engine/process/child_process.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("telegrad-device-worker %s\n", std::string(telegrad::Version()).c_str());
    return 0;
  }
  constexpr char kUse[] = "telegrad-device-worker: telegradd starts this program by itself\n";
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUse, stdout);
    return 0;
  }
  if (!telegrad::BeginAsChild()) {
    std::fputs(kUse, stderr);
    return 2;
  }
  if (argc == 2 && std::string_view(argv[1]) == "driver") {
    return telegrad::ServeDriver(telegrad::kChildSocket, &telegrad::OpenForDaemon);
  }
  return telegrad::ServeDevice(telegrad::kChildSocket);
}
