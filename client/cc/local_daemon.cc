// Looks for a listening socket in the user's runtime folder and then in the system's, and skips
// a folder that other users can write.
#include "client/cc/local_daemon.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "client/cc/connection.h"
#include "engine/base/status.h"
#include "engine/base/unique_fd.h"

namespace telegrad {
namespace {

constexpr const char* kSystemFolder = "/run/telegrad";
constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

// A connected socket; invalid where no process listens. A full backlog counts as a listening
// process.
UniqueFd ConnectUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return UniqueFd();
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN) {
    return fd;
  }
  return UniqueFd();
}

absl::Status CheckOwned(const std::string& folder) {
  struct stat s;
  if (lstat(folder.c_str(), &s) != 0) {
    return NotFound(folder, ": ", std::strerror(errno));
  }
  if (!S_ISDIR(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & kOthersMayWrite) != 0) {
    return absl::PermissionDeniedError(
        StrCat(folder, " must be a folder of user ", geteuid(),
               " that others may not write; remove it, or set XDG_RUNTIME_DIR"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string UserRuntimeFolder() {
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/') {
    return StrCat(runtime, "/telegrad");
  }
  return StrCat("/tmp/telegrad-", geteuid());
}

absl::Status MakeUserRuntimeFolder() {
  const std::string folder = UserRuntimeFolder();
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return FailedPrecondition("cannot make ", folder, ": ", std::strerror(errno));
  }
  return CheckOwned(folder);
}

std::string FindLocalDaemon() {
  const std::string own = UserRuntimeFolder();
  if (const std::string path = StrCat(own, "/", kDaemonSocketName);
      CheckOwned(own).ok() && ConnectUnix(path).valid()) {
    return StrCat("unix:", path);
  }
  // Only the system makes folders in /run.
  const std::string path = StrCat(kSystemFolder, "/", kDaemonSocketName);
  return ConnectUnix(path).valid() ? StrCat("unix:", path) : "";
}

std::string DefaultAddress() {
  if (const char* from_env = std::getenv("TELEGRAD_ADDRESS");
      from_env != nullptr && *from_env != 0) {
    return from_env;
  }
  const std::string found = FindLocalDaemon();
  return found.empty() ? std::string(kDefaultAddress) : found;
}

absl::StatusOr<int> DaemonProcess(const std::string& address) {
  constexpr std::string_view kUnix = "unix:";
  if (!address.starts_with(kUnix)) return InvalidArgument(address, " is not a unix socket");
  const UniqueFd fd = ConnectUnix(address.substr(kUnix.size()));
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (!fd.valid() || getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.pid <= 0) {
    return absl::UnavailableError(StrCat("no process listens on ", address));
  }
  return peer.pid;
}

}  // namespace telegrad
