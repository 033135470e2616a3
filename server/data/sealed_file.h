// Memory that a process of the same machine shares with the server: a memfd whose size is sealed.
//
// It is mapped, which copies about three times as fast as system calls where the mapping is used
// again (see kept_mappings.h). A page that the system cannot provide, for any reason, is an error
// and not a SIGBUS (see guarded_copy.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "engine/base/unique_fd.h"
#include "server/data/kept_mappings.h"

namespace telegrad {

class SealedFile {
 public:
  // Takes part [offset, offset + bytes). INVALID_ARGUMENT for anything but a memfd that is sealed
  // against shrinking, growing and further seals, is open for what is wanted, and has as many
  // bytes. `paid` goes with it. Its mapping comes from `kept` and goes there, for who has the
  // account `owner`; null: it is used once.
  static absl::StatusOr<std::shared_ptr<const SealedFile>> Open(
      UniqueFd fd, uint64_t offset, uint64_t bytes, bool write, Reservation paid,
      std::shared_ptr<KeptMappings> kept = nullptr, const Account* owner = nullptr);
  ~SealedFile();
  SealedFile(const SealedFile&) = delete;
  SealedFile& operator=(const SealedFile&) = delete;

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

  bool HasItsPages() const;
  // Copies between `ours` and the mapping; `to_file` says in which direction.
  bool Copy(uint64_t at, std::byte* ours, size_t bytes, bool to_file) const;
  absl::Status ReadByCalls(uint64_t at, std::span<std::byte> to) const;

  Reservation paid_;
  const UniqueFd fd_;
  const uint64_t offset_, bytes_;
  const int64_t blocks_;  // that it had
  std::shared_ptr<KeptMappings> kept_;
  KeptMappings::Key key_;
  std::unique_ptr<Mapping> mapping_;  // null: the system refused, or there are no bytes
  bool fresh_ = false;                // its pages are not in the page tables yet
  mutable std::atomic<uint64_t> copied_ = 0;
  mutable std::atomic<bool> lost_ = false;  // a page was
};

}  // namespace telegrad
