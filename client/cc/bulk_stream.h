// One of the connections of BulkTransfers: its protocol, for any transport.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "client/cc/bulk_transfers.h"
#include "engine/wire/compression.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

class BulkStream {
 public:
  virtual ~BulkStream() = default;

  // Sends all messages that are ready and that have credit. Called without the owner's mutex.
  virtual void Kick() = 0;
  virtual void Cancel() = 0;
  // Cancels, and waits until the transport uses neither this nor the memory of a job.
  virtual void Drain() = 0;
  // Whether another transport may serve where this one could not be attached.
  virtual bool optional() const = 0;

  // By the owner, with its mutex held, which has another name there.
  bool done() const {
    owner_->mutex_.AssertHeld();
    return done_;
  }
  bool attached() const {
    owner_->mutex_.AssertHeld();
    return attached_;
  }
  absl::Status status() const {
    owner_->mutex_.AssertHeld();
    return status_;
  }
  // The messages that the server may not have received: the last chunks sent, up to its credit, the
  // pulls that are not answered, and the last releases.
  struct Left {
    std::deque<BulkTransfers::SentRange> chunks;
    std::deque<BulkTransfers::Sent> pulls;
    std::deque<uint64_t> releases;
  };
  Left TakeLeft() {
    owner_->mutex_.AssertHeld();
    return {std::exchange(chunks_, {}), std::exchange(pulls_, {}), std::exchange(releases_, {})};
  }

 protected:
  using JobRef = BulkTransfers::JobRef;

  // On its way to the server.
  struct Outgoing {
    v1::TransferRequest request;
    JobRef job;                        // of a chunk
    std::span<const std::byte> data;   // of the chunk
    std::shared_ptr<const void> keep;  // what that lies in
  };
  // The memory of an arriving chunk. Only this stream writes there until EndChunk, which must
  // follow every call.
  struct Incoming {
    JobRef job;
    std::span<std::byte> to;  // none where the read has failed: the memory is the caller's again
  };

  explicit BulkStream(BulkTransfers* owner) : owner_(owner) {}

  v1::TransferRequest AttachRequest(std::string token, uint64_t epoch) const;
  // The next message, if there is one and credit for it.
  std::optional<Outgoing> NextMessage() TG_REQUIRES(owner_->mutex_);
  // Called without the mutex: computes a chunk's checksum, and compresses the chunk where that was
  // agreed on.
  void Seal(Outgoing* message) const;
  // The transport does not need the message's memory any more.
  void EndSending(const Outgoing& message);

  // Handles a message of the server other than a chunk. An error is a violation of the protocol, or
  // the server's reason for ending the stream.
  absl::Status Take(const v1::TransferResponse& response);
  // `stop`: see LentMemory::Begin.
  absl::StatusOr<Incoming> BeginChunk(const v1::Chunk& chunk, std::function<void()> stop = {});
  // Null where it is not compressed.
  static absl::StatusOr<const CompressionMethod*> CompressionOf(const v1::Chunk& chunk);
  // `crc`: of the bytes that are there now; none if the chunk did not arrive.
  void EndChunk(const v1::Chunk& chunk, const Incoming& incoming, std::optional<uint32_t> crc);
  // The transport is over.
  void SetDone(const absl::Status& status) TG_REQUIRES(owner_->mutex_);

  BulkTransfers* const owner_;

  bool attached_ TG_GUARDED_BY(owner_->mutex_) = false;
  absl::Status status_ TG_GUARDED_BY(owner_->mutex_);

 private:
  absl::Status TakeRefusal(const v1::Refused& refused);

  bool done_ TG_GUARDED_BY(owner_->mutex_) = false;
  uint64_t chunk_bytes_ TG_GUARDED_BY(owner_->mutex_) = 0;
  uint64_t credit_ TG_GUARDED_BY(owner_->mutex_) = 0;
  uint64_t most_credit_ TG_GUARDED_BY(owner_->mutex_) = 0;
  std::deque<BulkTransfers::SentRange> chunks_ TG_GUARDED_BY(owner_->mutex_);
  std::deque<BulkTransfers::Sent> pulls_ TG_GUARDED_BY(owner_->mutex_);
  std::deque<uint64_t> releases_ TG_GUARDED_BY(owner_->mutex_);
  uint64_t chunks_bytes_ TG_GUARDED_BY(owner_->mutex_) = 0;  // of chunks_
};

}  // namespace telegrad
