#include "server/data/sealed_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "server/data/guarded_copy.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<const SealedFile>> SealedFile::Open(UniqueFd fd, uint64_t offset,
                                                                   uint64_t bytes, bool write,
                                                                   Reservation paid) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  struct stat stat;
  struct statfs system;
  // Only files of memory have seals; those of huge pages are of another file system.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || fstat(fd.get(), &stat) != 0 || fstatfs(fd.get(), &system) != 0 ||
      system.f_type != TMPFS_MAGIC) {
    return InvalidArgument("expected a memfd as shared memory, got another file");
  }
  if ((seals & kSeals) != kSeals) {
    return InvalidArgument(
        "the memfd is not sealed; expected F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL");
  }
  const int mode = fcntl(fd.get(), F_GETFL) & O_ACCMODE;
  if (mode == O_WRONLY || (write && (mode == O_RDONLY || (seals & F_SEAL_WRITE) != 0))) {
    return InvalidArgument("this memfd is not open to be ", write ? "written" : "read");
  }
  const auto size = static_cast<uint64_t>(stat.st_size);
  if (offset > size || bytes > size - offset) {
    return InvalidArgument(bytes, " bytes at ", offset, " are not inside of the memfd's ", size);
  }
  // Pages that are not there would be taken from the daemon's share of the memory, and stay for as
  // long as others hold the file.
  if (write && static_cast<uint64_t>(stat.st_blocks) * 512 < size) {
    return InvalidArgument("the memfd has ", size, " bytes and pages for ", stat.st_blocks * 512,
                           "; allocate all of them first with posix_fallocate");
  }
  return std::shared_ptr<const SealedFile>(
      new SealedFile(std::move(paid), std::move(fd), offset, bytes, stat.st_blocks));
}

absl::Status SealedFile::Read(uint64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = pread(fd_.get(), to.data(), to.size(), static_cast<off_t>(offset_ + at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return absl::DataLossError(StrCat("shared memory cannot be read: ",
                                        n < 0 ? std::strerror(errno) : "the file is too short"));
    }
    at += static_cast<uint64_t>(n);
    to = to.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status SealedFile::Write(uint64_t at, std::span<const std::byte> from) const {
  if (from.empty()) return absl::OkStatus();
  // Pages can be taken out of the file at any time. The next write then finds fewer than at first:
  // what the daemon has put back is a piece at most.
  struct stat stat;
  if (fstat(fd_.get(), &stat) != 0 || stat.st_blocks < blocks_) {
    return absl::DataLossError("pages of the shared memory have been taken out of it");
  }
  const uint64_t first = offset_ + at, page = first % static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = from.size() + page;
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                             fd_.get(), static_cast<off_t>(first - page));
  if (mapping == MAP_FAILED) {
    return absl::DataLossError(StrCat("shared memory cannot be mapped: ", std::strerror(errno)));
  }
  char* const to = static_cast<char*>(mapping) + page;
  const bool whole = GuardedCopy(to, from.data(), from.size(), to);
  munmap(mapping, bytes);
  return whole ? absl::OkStatus()
               : absl::DataLossError(
                     "shared memory cannot be written: the system has no memory left");
}

}  // namespace telegrad
