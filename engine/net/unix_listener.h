// Unix sockets that are named by a path of the file system. What a process has left there that has
// ended is replaced; a socket at which somebody listens is not.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

// The file of a socket that this process has bound. It is removed at the end, unless another one
// has taken its place by then. For as long as the socket is open no other file has its number, so
// this goes before the socket does.
class UnixSocketFile {
 public:
  UnixSocketFile() = default;
  explicit UnixSocketFile(std::string path);  // which is there
  UnixSocketFile(UnixSocketFile&& other) noexcept;
  UnixSocketFile& operator=(UnixSocketFile&& other) noexcept;
  ~UnixSocketFile() { Remove(); }
  void Remove();

 private:
  std::string path_;  // empty: there is none
  dev_t device_ = 0;
  ino_t number_ = 0;
};

struct UnixListener {
  UniqueFd fd;  // bound, and not blocking; the caller makes it listen
  UnixSocketFile file;
};

// Of the type SOCK_STREAM or SOCK_SEQPACKET. INVALID_ARGUMENT for a path that is empty or has more
// than 107 bytes; UNAVAILABLE where it cannot be bound, for instance because a process listens
// there or because another file is there.
absl::StatusOr<UnixListener> BindUnix(const std::string& path, int type);

}  // namespace telegrad
