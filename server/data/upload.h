// The bytes of one Write that arrive as chunks, in any order and over any streams. Until the
// operation is at the front of its session and its buffer is free, they are staged under the credit
// of their stream; from then on each is written directly to its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "devices/api/device.h"
#include "engine/base/mutex.h"
#include "server/admin/metrics.h"
#include "server/data/byte_ranges.h"
#include "server/data/credit.h"
#include "server/pool/session_queues.h"

namespace telegrad {

// What a transport received.
class ChunkContent {
 public:
  virtual ~ChunkContent() = default;
  // Writes exactly the announced number of bytes to `to`. DATA_LOSS if their checksum differs,
  // INVALID_ARGUMENT if they cannot be produced; what was written is then invalid.
  virtual absl::Status CopyTo(std::byte* to) const = 0;
  // Called from another thread during CopyTo: ends it at once, with an error unless all bytes have
  // arrived. False where CopyTo ends without this.
  virtual bool Abandon() const { return false; }
};

// Thread-safe.
class Upload : public std::enable_shared_from_this<Upload> {
 public:
  // Limit of the separate ranges that one upload has received.
  static constexpr size_t kMaxRanges = 4096;
  // Limit of the chunks that one upload has staged or is copying.
  static constexpr size_t kMaxChunks = 4096;

  // `count`: see Transfers.
  Upload(uint64_t transfer, std::shared_ptr<SessionQueues> queues,
         std::function<void(Metric, int64_t)> count)
      : transfer_(transfer), queues_(std::move(queues)), count_(std::move(count)) {}

  // The operation has arrived and states the number of bytes of the upload. Staged chunks beyond
  // that are dropped; their credit is added to `dropped`.
  void Expect(uint64_t bytes, std::vector<CreditLine::Part>* dropped);
  // The operation is at the front and nothing uses `target`, which is as long as the whole, on
  // `device`. Copies what is staged.
  void Open(BufferView target, Device* device);
  // Calls back at the end of Open, on its thread; at once if it is open. Never if it ends before.
  // FAILED_PRECONDITION if another caller waits already.
  absl::Status WhenOpen(std::function<void()> callback);
  uint64_t staged_bytes() const;
  bool is_open() const;
  // Reached when the last byte is written, or with the status of End, and not before the last
  // writer to the target has finished.
  const TimelinePoint& ended() const { return ended_; }
  // Ends the upload: no more chunks are taken.
  void End(const absl::Status& why);

  // DATA_LOSS, or UNAVAILABLE while the same bytes are arriving: the client sends the chunk again.
  // If the same bytes arrive over two streams, the older one is abandoned: the client has sent them
  // again because that connection broke. INVALID_ARGUMENT if the chunk is outside of the upload or
  // overlaps a part of received bytes; a chunk that has been received in full is accepted.
  // NOT_FOUND after the end.
  absl::Status Take(ByteRange range, const ChunkContent& content, CreditLine::Part credit);

  struct State {
    uint64_t bytes = 0;
    std::vector<ByteRange> missing;
  };
  State Stat() const;
  // Grows whenever bytes have arrived.
  uint64_t arrivals() const;

 private:
  struct Staged {
    ByteRange range;
    std::unique_ptr<std::byte[]> bytes;
    CreditLine::Part credit;
  };

  // A range that a thread is writing.
  struct Claim {
    ByteRange range;
    const ChunkContent* content = nullptr;  // as long as it is being received
    uint64_t stream = 0;                    // over which
  };

  const Claim* FindClaimLocked(ByteRange range) const
      TG_REQUIRES(mutex_);  // that overlaps the range
  std::vector<Claim>::iterator ClaimLocked(ByteRange range) TG_REQUIRES(mutex_);
  absl::Status CheckInsideLocked(ByteRange range) const TG_REQUIRES(mutex_);
  absl::Status AdmitLocked(ByteRange range) const TG_REQUIRES(mutex_);
  void ArrivedLocked(ByteRange range) TG_REQUIRES(mutex_);  // its content has been received
  absl::Status Place(ByteRange range, const ChunkContent& content, CreditLine::Part credit);
  absl::Status PlaceStaged(ByteRange range, const ChunkContent& content, CreditLine::Part credit);
  // Ends a claim: the bytes are written or not, or an error ends the upload.
  void Settle(ByteRange range, bool placed, const absl::Status& fatal = absl::OkStatus());

  const uint64_t transfer_;
  const std::shared_ptr<SessionQueues> queues_;
  const std::function<void(Metric, int64_t)> count_;
  const TimelinePoint ended_{std::make_shared<Timeline>(), 1};

  mutable Mutex mutex_;
  std::optional<uint64_t> bytes_
      TG_GUARDED_BY(mutex_);                   // of the whole, once the operation has arrived
  ByteRanges received_ TG_GUARDED_BY(mutex_);  // staged, placed, or with the device
  std::vector<Claim> claims_ TG_GUARDED_BY(mutex_);
  ConditionVariable settled_;  // a claim was
  std::vector<Staged> staged_ TG_GUARDED_BY(mutex_);
  uint64_t staged_bytes_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t placed_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t arrivals_ TG_GUARDED_BY(mutex_) = 0;
  BufferView target_;         // of the thread that opens, then constant
  Device* device_ = nullptr;  // likewise
  bool open_ TG_GUARDED_BY(mutex_) = false;
  std::function<void()> when_open_ TG_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ TG_GUARDED_BY(mutex_);  // decided; reached when claims_ is empty
};

}  // namespace telegrad
