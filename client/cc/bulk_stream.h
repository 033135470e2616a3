// One connection of BulkTransfers and the Transfer stream on it.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "client/cc/bulk_transfers.h"
#include "engine/wire/envelope.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

class BulkStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  BulkStream(BulkTransfers* owner, std::shared_ptr<grpc::Channel> channel,
             const SessionTicket& ticket);
  ~BulkStream() override = default;

  // Sends whatever there is to send and room for. Without the owner's mutex.
  void Kick();
  void Cancel() { context_->TryCancel(); }
  // Cancels, and waits until the transport uses neither this nor the memory of a job.
  void Drain();

  // With the owner's mutex held.
  bool done() const { return done_; }
  bool attached() const { return attached_; }
  const absl::Status& status() const { return status_; }
  // What the server may not have got: the chunks sent last, as many as it had given credit for, and
  // the pulls that are not answered.
  std::deque<BulkTransfers::Sent>& chunks() { return chunks_; }
  std::deque<BulkTransfers::Sent>& pulls() { return pulls_; }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  // How many slices the transport still holds.
  struct InUse {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t slices = 0;
  };

  bool NextMessage();  // into outgoing_; with the owner's mutex held, which it may give up
  void SetMessage(const v1::TransferRequest& request, std::span<const std::byte> data,
                  std::shared_ptr<const void> keep);
  absl::Status Receive();
  absl::Status TakeChunk(const v1::Chunk& chunk, const Envelope& envelope);
  absl::Status TakeRefusal(const v1::Refused& refused);

  BulkTransfers* const owner_;
  std::shared_ptr<grpc::Channel> channel_;
  std::optional<grpc::ClientContext> context_{std::in_place};  // until it is drained
  const std::shared_ptr<InUse> in_use_ = std::make_shared<InUse>();
  grpc::ByteBuffer incoming_, outgoing_;

  // Guarded by the owner's mutex.
  bool attached_ = false;
  uint64_t chunk_bytes_ = 0, credit_ = 0, most_credit_ = 0;
  std::deque<BulkTransfers::Sent> chunks_, pulls_;
  uint64_t chunks_bytes_ = 0;  // of chunks_
  int starting_ = 0;
  bool writing_ = true;  // the first message
  bool ended_ = false, released_ = false, done_ = false;
  absl::Status status_;
};

}  // namespace telegrad
