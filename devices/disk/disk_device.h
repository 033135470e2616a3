// Files as memory: a directory that the operator names, whose files are buffers. A copy to or from
// another device reads or writes the file. Files are never mapped, because truncating a mapped file
// would kill the process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/api/memory_device.h"

namespace telegrad {

// pread(2) and pwrite(2), for tests to let fail.
class FileIo {
 public:
  virtual ~FileIo() = default;
  virtual ssize_t Read(int fd, void* to, size_t bytes, off_t at);
  virtual ssize_t Write(int fd, const void* from, size_t bytes, off_t at);
};

struct DiskOptions {
  std::string name = {};       // the device is called DISK:<name>; letters, digits, '-' and '_'
  std::string directory = {};  // its root
  bool read_only = false;
  // Bytes by which files may be made or grow before this device is closed, with what Alloc has in
  // use: its memory limit.
  int64_t growth = int64_t{16} << 30;
  int64_t open_files = 1024;  // at once
  std::shared_ptr<FileIo> io = std::make_shared<FileIo>();
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
};

// INVALID_ARGUMENT for a bad name or a root that is no directory.
//
// Open takes paths relative to the root, see CheckRelativePath. NOT_FOUND and PERMISSION_DENIED as
// the file system says, PERMISSION_DENIED also where a part of the path is a symbolic link or the
// root is read-only; OUT_OF_RANGE past the file's end; ALREADY_EXISTS for kCreate of a file that is
// there; RESOURCE_EXHAUSTED over a limit. Its directories are never made. Alloc makes a file
// without a name, which is gone with its last reference.
//
// A copy fails with OUT_OF_RANGE where the file has become too short, RESOURCE_EXHAUSTED on a full
// disk, DATA_LOSS where the medium fails; what it would have written is undefined then. Copies of
// overlapping parts of one file that was opened twice mix old and new bytes.
absl::StatusOr<std::unique_ptr<Device>> OpenDisk(const DiskOptions& options);

}  // namespace telegrad
