// The worker processes of a daemon with --isolate, as the system shows them.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "engine/base/strings.h"

namespace telegrad {

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// The device workers of a daemon.
inline std::set<pid_t> WorkersOf(pid_t daemon) {
  std::set<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = ReadAll(entry.path() / "status");
    // Names of processes have 15 bytes.
    if (status.starts_with("Name:\ttelegrad-device") &&
        status.find(StrCat("\nPPid:\t", daemon, "\n")) != std::string::npos) {
      out.insert(static_cast<pid_t>(std::stol(name)));
    }
  }
  return out;
}

// Those of them that host a GPU's driver.
inline std::set<pid_t> DriversOf(pid_t daemon) {
  std::set<pid_t> out = WorkersOf(daemon);
  std::erase_if(out, [](pid_t pid) {
    return !ReadAll(StrCat("/proc/", pid, "/cmdline")).ends_with(std::string_view("\0driver\0", 8));
  });
  return out;
}

// Whether a signal that ends or stops the process has done so, for which it needs a processor.
inline bool HasEndedOrStopped(pid_t process) {
  const std::string status = ReadAll(StrCat("/proc/", process, "/status"));
  return status.empty() || status.find("State:\tZ") != std::string::npos ||
         status.find("State:\tT") != std::string::npos;
}

}  // namespace telegrad
