// A socket that nobody listens at refuses connections, which is how a file that was left is told
// from one in use. Of several processes that look at once, each looks and listens in its turn: it
// locks the folder meanwhile, so that none takes the place of one that is about to listen.
#include "engine/net/unix_listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// A daemon that looks and listens holds the lock for microseconds. flock has no time limit, so it
// is asked again and again: anyone who may read the folder could hold the lock for ever.
constexpr std::chrono::seconds kMostForTurn{1};
constexpr std::chrono::milliseconds kTurnPause{2};

// The folder of the path, locked until it is closed. Without a lock, and so without protection from
// a daemon that starts at the same moment, where the folder cannot be read or locked, or somebody
// keeps it locked: a stranger delays the daemon and does not stop it.
UniqueFd LockFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return fd;
  const auto until = std::chrono::steady_clock::now() + kMostForTurn;
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kTurnPause);
  }
  return fd;
}

enum class Found { kNothing, kLeft, kInUse, kOther };

// What is at the address of a socket of that type.
Found FindAt(const sockaddr_un& address, int type) {
  struct stat file;
  if (lstat(address.sun_path, &file) != 0) return Found::kNothing;
  if (!S_ISSOCK(file.st_mode)) return Found::kOther;
  const UniqueFd probe(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool refused =
      probe.valid() &&
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == ECONNREFUSED;
  return refused ? Found::kLeft : Found::kInUse;
}

}  // namespace

UnixSocketFile::UnixSocketFile(std::string path) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return;
  path_ = std::move(path);
  device_ = file.st_dev;
  number_ = file.st_ino;
}

UnixSocketFile::UnixSocketFile(UnixSocketFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), device_(other.device_), number_(other.number_) {}

UnixSocketFile& UnixSocketFile::operator=(UnixSocketFile&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  path_ = std::exchange(other.path_, {});
  device_ = other.device_;
  number_ = other.number_;
  return *this;
}

void UnixSocketFile::Remove() {
  const std::string path = std::exchange(path_, {});
  struct stat file;
  if (path.empty() || lstat(path.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == number_) unlink(path.c_str());
}

absl::StatusOr<UnixListener> BindUnix(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument("\"", path, "\": the path of a unix socket has 1 to ",
                           sizeof(address.sun_path) - 1, " bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto refused = [&](std::string_view why) {
    return absl::UnavailableError(StrCat("cannot listen on ", path, ": ", why));
  };
  const UniqueFd turn = LockFolderOf(path);
  switch (FindAt(address, type)) {
    case Found::kInUse:
      return refused("another process listens there");
    case Found::kOther:
      return refused("there is a file that is not a socket");
    case Found::kLeft:
      unlink(path.c_str());
      break;
    case Found::kNothing:
      break;
  }
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return refused(std::strerror(errno));
  }
  return UnixListener{.fd = std::move(fd), .file = UnixSocketFile(path)};
}

}  // namespace telegrad
