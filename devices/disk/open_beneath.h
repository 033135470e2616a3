// Opens a file by a path that a client has chosen, below a directory and never outside of it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace telegrad {

// An open file or directory; closed with it.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  int release();

 private:
  int fd_;
};

// The status for a failed system call: what was done to `what`, and errno `error` in words.
// RESOURCE_EXHAUSTED also for a full disk or quota, DATA_LOSS where the medium fails.
absl::Status FileError(int error, std::string_view doing, std::string_view what);

// INVALID_ARGUMENT unless `path` is relative and made of plain names: at most 4095 bytes, no empty
// one, no "." or "..", no zero byte.
absl::Status CheckRelativePath(std::string_view path);

// Opens the regular file `path`, which passed CheckRelativePath, below the directory `root`, with
// open(2)'s `flags`. No part of the path may be a symbolic link, and none is followed even if it
// becomes one meanwhile: PERMISSION_DENIED. INVALID_ARGUMENT for what is no regular file.
absl::StatusOr<FileDescriptor> OpenBeneath(int root, const std::string& path, int flags);

// The two ways that OpenBeneath has to find a path: openat2(2), and where a kernel or a sandbox
// does not know it, a walk by single names. Both return a descriptor, or -1 and set errno.
int ResolveByKernel(int root, const std::string& path, int flags);
int ResolveByWalk(int root, const std::string& path, int flags);

}  // namespace telegrad
