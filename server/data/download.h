// The bytes of a Read, ready to be pulled. Its buffer is not written before the download has ended
// and all fetched bytes have been sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/account.h"
#include "server/data/byte_ranges.h"
#include "server/data/held_read.h"
#include "server/pool/session_queues.h"

namespace telegrad {

struct FetchedBytes {
  const std::byte* data = nullptr;
  std::shared_ptr<const void> owner;  // of the memory that they lie in
};

// Thread-safe.
class Download : public std::enable_shared_from_this<Download> {
 public:
  using Fetched = std::function<void(absl::StatusOr<FetchedBytes>)>;

  // A download of `bytes` bytes from `at`, which is memory of `device`. Bytes fetched from memory
  // that the host cannot address are charged to `staging` until they have been sent.
  Download(std::shared_ptr<HeldRead> held, uint64_t at, uint64_t bytes, Device* device,
           std::shared_ptr<SessionQueues> queues, std::shared_ptr<Account> staging)
      : held_(std::move(held)),
        at_(at),
        bytes_(bytes),
        device_(device),
        queues_(std::move(queues)),
        staging_(std::move(staging)) {}

  uint64_t bytes() const { return bytes_; }
  // Whether the host can address its memory, so that Fetch calls back at once.
  bool is_here() const { return held_->memory()->host() != nullptr; }
  // Calls back with the bytes of a range inside of it: at once where the host can address them,
  // else once they are copied. RESOURCE_EXHAUSTED where the staging account has no room for them;
  // if they are `ahead` of others that are to be sent first, also where half of it is in use, so
  // that there is room for those.
  void Fetch(ByteRange range, bool ahead, Fetched fetched) const;

 private:
  const std::shared_ptr<HeldRead> held_;
  const uint64_t at_, bytes_;
  Device* const device_;
  const std::shared_ptr<SessionQueues> queues_;
  const std::shared_ptr<Account> staging_;
};

}  // namespace telegrad
