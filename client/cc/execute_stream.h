// The Execute stream behind a RemoteSession: a queue of operations going out, one message at a
// time, and the operations that wait for their answers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "client/cc/bulk_transfers.h"
#include "client/cc/chunk_pool.h"
#include "client/cc/future.h"
#include "client/cc/out_payload.h"
#include "client/cc/remote_import.h"
#include "client/cc/remote_session.h"
#include "engine/wire/envelope.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"
#include "proto/transport.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {

// Where a read goes.
struct ReadTarget {
  std::span<std::byte> into;
  int64_t offset = 0;  // of the buffer, where `into` begins
  Future<Done> done;
};

// What an operation's answer is for; monostate: it has none unless it fails.
using Completion =
    std::variant<std::monostate, Future<Done>, Future<bool>, Future<Digest>, Future<RunInfo>,
                 Future<RemoteModel>, Future<SessionTicket>, ReadTarget>;

class ExecuteStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit ExecuteStream(Connection& connection);
  ~ExecuteStream() override;

  // Sends `request` (without its id), cut into messages of one chunk of payload each where it is a
  // Write.
  void Send(const char* what, v1::ExecuteRequest request, Completion completion,
            OutPayload payload = {});
  uint64_t NewHandles(uint64_t count);  // the first of them
  // What names the session, once the server has opened it.
  const Future<SessionTicket>& ticket() const { return ticket_; }
  // Ends it: what depends on what did not come about must not go on.
  void Abandon(const absl::Status& why);
  absl::Status status(bool take);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  struct Outgoing {
    uint64_t id = 0;  // of its next message
    const char* what = "";
    v1::ExecuteRequest request;
    OutPayload payload;
    bool chunked = false;
  };
  struct Pending {
    uint64_t first = 0, last = 0;  // ids of its messages
    const char* what = "";
    Completion completion;
  };
  // How many slices the transport still holds.
  struct InUse {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t slices = 0;
  };

  void Enqueue(const char* what, v1::ExecuteRequest request, Completion completion,
               OutPayload payload, std::unique_lock<std::mutex>& lock);
  void EndIfIdle();
  void Pump();
  bool PrepareMessage(Outgoing& out);
  grpc::Slice PayloadSlice(std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  absl::Status Receive();
  absl::Status Complete(Pending& pending, const v1::ExecuteResponse& response,
                        const Envelope& envelope, bool* finished);
  absl::Status TakeChunk(ReadTarget& target, const v1::ExecuteResponse& response,
                         const Envelope& envelope, bool* finished);
  absl::Status RecordError(const char* what, uint64_t id, absl::StatusCode code,
                           std::string_view message);

  const std::string address_;
  grpc::ClientContext context_;
  const std::shared_ptr<InUse> in_use_ = std::make_shared<InUse>();
  const std::shared_ptr<ChunkPool> chunks_ = std::make_shared<ChunkPool>(kChunkBytes);
  grpc::ByteBuffer incoming_, outgoing_;

  const Future<SessionTicket> ticket_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;
  std::deque<Pending> pending_;  // popped by the reader only
  uint64_t next_id_ = 1;
  uint64_t next_handle_ = 1;
  int silent_ = 0;  // operations since the last one that is answered
  int held_ = 0;    // messages that the transport may hold back for the next one
  int starting_ = 0;
  bool writing_ = false;
  bool ended_ = false;  // nothing will be read any more
  bool released_ = false;
  bool failed_ = false;  // broken_ is final, and so is what pending_ had
  bool done_ = false;
  absl::Status first_error_;
  absl::Status broken_;  // of the connection
};

}  // namespace telegrad
