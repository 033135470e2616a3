// The server's side of a stream of transfers, for any transport: takes chunks of uploads and pulls,
// and returns the message to send next: first answers that the client waits for, then chunks of
// downloads, in the order of the pulls. Of a download one chunk is prepared at a time, so a client
// that does not read holds no memory but the buffer that it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/net/checksum.h"
#include "server/admin/metrics.h"
#include "server/data/transfers.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

// The data of one message, which its transport may not have received yet.
class MessageData {
 public:
  virtual ~MessageData() = default;
  virtual uint64_t bytes() const = 0;
  // One of these, once. Their errors are the transport's. The checksum of what was written to `to`:
  virtual absl::StatusOr<uint32_t> CopyTo(std::byte* to, Checksum kind) = 0;
  // What was received, which stays for as long as this:
  virtual absl::StatusOr<std::span<const std::span<const uint8_t>>> Pieces() = 0;
  // See ChunkContent.
  virtual bool Abandon() { return false; }
  // Whether the transport failed: then no answer can be sent.
  virtual bool broken() const { return false; }
};

struct TransferMessage {
  v1::TransferResponse head;
  FetchedBytes data;  // of its field `data`
  uint64_t bytes = 0;
};

// Thread-safe, but for Accept, which is called for one message at a time.
class TransferStream {
 public:
  explicit TransferStream(Metrics* metrics) : metrics_(metrics) {}
  ~TransferStream();

  // Called before all others, for the client's `request`; the first message is Attached, with
  // `proof`. `keeps_bytes`: see StreamSocket::KeepsBytes.
  // `only`: the one transfer that the stream may carry, uploaded.
  struct Only {
    uint64_t transfer = 0;
    std::shared_ptr<Upload> upload;
  };
  absl::Status Attach(std::shared_ptr<TransferOwner> owner,
                      const std::shared_ptr<TransferSink>& sink, const v1::Attach& request,
                      bool keeps_bytes = false, std::string proof = {},
                      std::optional<Only> only = std::nullopt);
  bool attached() const { return owner_ != nullptr; }
  // An error is a violation of the protocol, or the transport's; an error of a single chunk or pull
  // is answered with a Refused. Blocks only where `data` does.
  absl::Status Accept(const v1::TransferRequest& request, MessageData& data);
  // Called by the sink. Returns whether a message is ready to be sent.
  bool OnGranted(uint64_t bytes);
  // A chunk of a download, which is sent after all that were begun before it.
  struct Chunk {
    v1::Pull pull;        // of its bytes alone
    uint64_t number = 0;  // of the client's pull
    bool ahead = false;   // of others that were not sent yet
    // With the stream's mutex:
    bool fetched = false;  // or failed
    bool again = false;    // no room, or no need: to be fetched once it is the first
    std::optional<TransferMessage> message;
    absl::Status failed;
  };
  // The next chunk to prepare, null while enough are. The caller then calls Fetch, which calls
  // back, perhaps at once, when it is prepared.
  std::shared_ptr<Chunk> BeginFetch();
  void Fetch(const std::shared_ptr<Chunk>& chunk, std::function<void()> ready);
  std::optional<TransferMessage> Next();
  bool wants_input() const;  // a client that requests more than it receives is not read further
  bool idle() const;         // nothing is to be sent or prepared
  bool fetching() const;     // a Fetch has not called back
  // The next message is the last one, Ended.
  void End(const absl::Status& status);
  // Nothing is sent any more.
  void Close();

 private:
  absl::Status TakeChunk(const v1::Chunk& chunk, MessageData& data);
  void TakePull(const v1::Pull& pull);
  void Refuse(uint64_t transfer, uint64_t offset, uint32_t bytes, const absl::Status& why);
  void CountRefusal(const absl::Status& why) const;
  void Fetched(Chunk& chunk, absl::StatusOr<FetchedBytes> fetched);
  std::optional<TransferMessage> NextChunkLocked() TG_REQUIRES(mutex_);
  void DropPullLocked() TG_REQUIRES(mutex_);
  bool HasCreditLocked() const TG_REQUIRES(mutex_);

  Metrics* const metrics_;
  // Set by Attach.
  std::shared_ptr<TransferOwner> owner_;
  std::shared_ptr<CreditLine> credit_;
  uint64_t chunk_bytes_ = 0;
  Checksum checksum_ = Checksum::kCrc32c;
  std::optional<Only> only_;

  mutable Mutex mutex_;
  std::deque<v1::TransferResponse> responses_ TG_GUARDED_BY(mutex_);
  std::deque<v1::Pull> pulls_ TG_GUARDED_BY(mutex_);  // what is left of them to be begun
  uint64_t pulled_ TG_GUARDED_BY(mutex_) = 0;         // pulls before those
  std::deque<std::shared_ptr<Chunk>> chunks_ TG_GUARDED_BY(mutex_);  // begun and not sent
  int fetching_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t granted_ TG_GUARDED_BY(mutex_) = 0;      // and not sent yet
  bool tell_credit_ TG_GUARDED_BY(mutex_) = false;  // however little: a chunk has to be sent again
  bool closed_ TG_GUARDED_BY(mutex_) = false;
};

}  // namespace telegrad
