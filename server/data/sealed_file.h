// Memory that a process of the same machine shares with the server: a memfd whose size is sealed.
//
// It is read by system calls. For writing, a part at a time is mapped, because the system
// serializes write calls to one file. A page that the system cannot provide, for any reason, is an
// error and not a SIGBUS (see guarded_copy.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

class SealedFile {
 public:
  // Takes part [offset, offset + bytes). INVALID_ARGUMENT for anything but a memfd that is sealed
  // against shrinking, growing and further seals, is open for what is wanted, and has as many
  // bytes. `paid` goes with it.
  static absl::StatusOr<std::shared_ptr<const SealedFile>> Open(UniqueFd fd, uint64_t offset,
                                                                uint64_t bytes, bool write,
                                                                Reservation paid);

  uint64_t bytes() const { return bytes_; }
  // Copy from and to the part; `at` and the bytes are inside of it. DATA_LOSS where the system
  // cannot provide a page.
  absl::Status Read(uint64_t at, std::span<std::byte> to) const;
  absl::Status Write(uint64_t at, std::span<const std::byte> from) const;

 private:
  SealedFile(Reservation paid, UniqueFd fd, uint64_t offset, uint64_t bytes, int64_t blocks)
      : paid_(std::move(paid)),
        fd_(std::move(fd)),
        offset_(offset),
        bytes_(bytes),
        blocks_(blocks) {}

  const Reservation paid_;
  const UniqueFd fd_;
  const uint64_t offset_, bytes_;
  const int64_t blocks_;  // that it had
};

}  // namespace telegrad
