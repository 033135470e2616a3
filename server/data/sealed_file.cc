// Copies through a mapping as long as the pages of the file are present, and by system calls
// where they are not.
#include "server/data/sealed_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "server/data/guarded_copy.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<const SealedFile>> SealedFile::Open(
    UniqueFd fd, uint64_t offset, uint64_t bytes, bool write, Reservation paid,
    std::shared_ptr<KeptMappings> kept, const Account* owner) {
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
  const bool writable = mode == O_RDWR && (seals & F_SEAL_WRITE) == 0;
  if (mode == O_WRONLY || (write && !writable)) {
    return InvalidArgument("this memfd is not open to be ", write ? "written" : "read");
  }
  const auto size = static_cast<uint64_t>(stat.st_size);
  if (offset > size || bytes > size - offset) {
    return InvalidArgument(bytes, " bytes at ", offset, " are not inside of the memfd's ", size);
  }
  // Pages that are not there would be taken from the daemon's share of the memory, and stay for as
  // long as others hold the file.
  const bool whole = static_cast<uint64_t>(stat.st_blocks) * 512 >= size;
  if (write && !whole) {
    return InvalidArgument("the memfd has ", size, " bytes and pages for ", stat.st_blocks * 512,
                           "; allocate all of them first with posix_fallocate");
  }
  const std::shared_ptr<SealedFile> file(
      new SealedFile(std::move(paid), std::move(fd), offset, bytes, stat.st_blocks));
  if (bytes == 0 || !whole) return file;
  file->key_ = {.owner = owner,
                .device = stat.st_dev,
                .file = stat.st_ino,
                .offset = offset,
                .bytes = bytes,
                .writable = writable};
  file->kept_ = std::move(kept);
  if (file->kept_ != nullptr) file->mapping_ = file->kept_->Take(file->key_);
  if (file->mapping_ != nullptr) return file;
  auto mapping = Mapping::Of(file->fd_.get(), offset, bytes, writable);
  if (!mapping.ok() && write) return mapping.status();
  if (!mapping.ok()) return file;
  file->mapping_ = *std::move(mapping);
  file->fresh_ = true;
  return file;
}

// What was copied as a whole will be again, if anything is.
SealedFile::~SealedFile() {
  if (kept_ == nullptr || mapping_ == nullptr || lost_ || copied_ < bytes_) return;
  kept_->Put(key_, std::move(mapping_), std::move(paid_));
}

// Pages can be taken out of the file at any time, and an access to the mapping puts them back. The
// next piece then finds fewer than at first: what the daemon has put back is a piece at most.
bool SealedFile::HasItsPages() const {
  struct stat stat;
  return fstat(fd_.get(), &stat) == 0 && stat.st_blocks >= blocks_;
}

bool SealedFile::Copy(uint64_t at, std::byte* ours, size_t bytes, bool to_file) const {
  std::byte* const theirs = mapping_->bytes().data() + at;
  if (fresh_) mapping_->Populate(at, bytes);
  const bool whole =
      to_file ? GuardedCopy(theirs, ours, bytes, theirs) : GuardedCopy(ours, theirs, bytes, theirs);
  // A larger one is not kept, so its page tables need not grow with it.
  if (bytes_ > KeptMappings::kMostBytes) mapping_->Forget(at, bytes);
  if (!whole) lost_ = true;
  copied_ += bytes;
  return whole;
}

absl::Status SealedFile::ReadByCalls(uint64_t at, std::span<std::byte> to) const {
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

absl::Status SealedFile::Read(uint64_t at, std::span<std::byte> to) const {
  if (to.empty()) return absl::OkStatus();
  // A call reads zeros where there is no page, and makes none.
  if (mapping_ == nullptr || !HasItsPages()) return ReadByCalls(at, to);
  if (Copy(at, to.data(), to.size(), /*to_file=*/false)) return absl::OkStatus();
  return absl::DataLossError("shared memory cannot be read: the system has no memory left");
}

absl::Status SealedFile::Write(uint64_t at, std::span<const std::byte> from) const {
  if (from.empty()) return absl::OkStatus();
  if (!HasItsPages()) {
    return absl::DataLossError("pages of the shared memory have been taken out of it");
  }
  if (Copy(at, const_cast<std::byte*>(from.data()), from.size(), /*to_file=*/true)) {
    return absl::OkStatus();
  }
  return absl::DataLossError("shared memory cannot be written: the system has no memory left");
}

}  // namespace telegrad
