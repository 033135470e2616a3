// The Execute stream behind a RemoteSession: a queue of operations going out, one message at a
// time, with short operations gathered in one where the server takes that, and the operations that
// wait for their answers. It is one call of Compute.Execute, or, of a
// resumable session, one connection after another: messages are kept until it is known that the
// server took them, and those that it did not are sent again over the next. A resumable session is
// opened by a call, and then moves to a bulk socket where the server takes operations there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "client/cc/bulk_socket.h"
#include "client/cc/bulk_transfers.h"
#include "client/cc/chunk_pool.h"
#include "client/cc/execute_transport.h"
#include "client/cc/future.h"
#include "client/cc/lent_memory.h"
#include "client/cc/out_payload.h"
#include "client/cc/payload_slices.h"
#include "client/cc/remote_import.h"
#include "client/cc/remote_session.h"
#include "client/cc/transfer_meter.h"
#include "engine/base/burst.h"
#include "engine/base/mutex.h"
#include "engine/wire/envelope.h"
#include "grpcpp/grpcpp.h"
#include "proto/transport.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {

// Where a read goes.
struct ReadTarget {
  std::span<std::byte> into;
  int64_t offset = 0;  // of the buffer, where `into` begins
  Future<Done> done;
  std::shared_ptr<LentMemory> lent = nullptr;  // or the memory is there until it is done
  uint64_t arrived = 0;                        // bytes from the begin on
};

// The result of an operation without an answer of its own, which a later answer acknowledges.
struct Told {
  Future<Done> done;
};

// The result of a run.
struct RunTellsSink {
  std::shared_ptr<RunSink> sink;
  uint64_t which = 0;
};

// What an operation's answer is for; monostate: it has none unless it fails.
using Completion =
    std::variant<std::monostate, Told, Future<Done>, Future<bool>, Future<HasInfo>, Future<Digest>,
                 Future<PutInfo>, Future<RunInfo>, RunTellsSink, Future<RemoteModel>, ReadTarget>;

// Completes an operation that waits for an answer with an error.
struct Fail {
  absl::Status status;
  void operator()(std::monostate) const {}
  void operator()(const Told& told) const { told.done.Set(status); }
  void operator()(const RunTellsSink& run) const { run.sink->OnRun(run.which, status); }
  void operator()(const ReadTarget& target) const { target.done.Set(status); }
  template <typename T>
  void operator()(const Future<T>& future) const {
    future.Set(status);
  }
};

// Limit of the messages of a resumable session that the server may not have accepted. From half of
// it on the server is asked which it has.
inline constexpr int64_t kMaxSentBytes = int64_t{64} << 20;

class ExecuteStream final : public ExecuteTransport::User {
 public:
  ExecuteStream(Connection& connection, const SessionOptions& options, TransferMeter* meter);
  ~ExecuteStream();

  // Sends `request` (without its id), cut into messages of one chunk of payload each where it is a
  // Write. A short request stays the caller's, who may fill it again. Returns the id of the last
  // message; 0 if the session is over.
  uint64_t Send(const char* what, v1::ExecuteRequest&& request, Completion completion,
                OutPayload payload = {});
  // Has the server give up every operation before, or those from `first` to `last`.
  void Cancel();
  void Cancel(uint64_t first, uint64_t last);
  // Whether so many operations can be sent without waiting; of Writes, only short ones.
  bool HasRoom(size_t operations) const;
  uint64_t next_operation() const;
  absl::Status Over() const;
  uint64_t NewHandles(uint64_t count);  // the first of them
  // The identity of the session, once the server has opened it.
  const Future<SessionTicket>& ticket() const { return ticket_; }
  // Ends the stream, so that operations that depend on a failed one are not executed.
  void Abandon(const absl::Status& why);
  absl::Status status(bool take);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  // What a thread that handles a burst of events does at its end, unless the stream has gone.
  class PumpLater final : public Burst::Part {
   public:
    explicit PumpLater(ExecuteStream* stream) : stream_(stream) {}
    void EndOfBurst() override {
      const MutexLock lock(mutex_);
      if (stream_ != nullptr) stream_->Pump();
    }
    void Forget() {
      const MutexLock lock(mutex_);
      stream_ = nullptr;
    }

   private:
    Mutex mutex_;
    ExecuteStream* stream_ TG_GUARDED_BY(mutex_);
  };
  // The next message to write.
  enum class Next { kNothing, kOpen, kRepeated, kAcknowledgement, kQueued };

  // An operation that is made into messages as they are sent: a file is read, or much is copied.
  struct Long {
    const char* what = "";
    v1::ExecuteRequest request;
    OutPayload payload;
    bool chunked = false;
  };
  // Short operations that are one message already.
  struct Gathered {
    std::string message;
    uint64_t last = 0;  // the id of the last of them
    int count = 0;
  };
  struct Outgoing {
    uint64_t id = 0;  // of the next message, or of its first operation
    std::variant<Gathered, Long> is;
  };
  struct Pending {
    uint64_t first = 0, last = 0;  // ids of its messages
    const char* what = "";
    Completion completion;
  };
  // A message that the server may not have accepted.
  struct Sent {
    uint64_t id = 0;  // of its last operation
    grpc::ByteBuffer message;
    int64_t bytes = 0;
  };
  void Enqueue(const char* what, v1::ExecuteRequest&& request, Completion completion,
               OutPayload payload) TG_REQUIRES(mutex_);
  void Gather(const v1::ExecuteRequest& request, size_t bytes) TG_REQUIRES(mutex_);
  void OnReadDone(ExecuteTransport& transport, bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const absl::Status& status) override;
  void Written();
  bool EndIfIdle();
  void Pump();
  Next NextLocked() const TG_REQUIRES(mutex_);
  void PrepareOpen() TG_REQUIRES(mutex_);
  void PrepareQueued() TG_REQUIRES(mutex_);        // which it may release meanwhile
  uint64_t PrepareGathered() TG_REQUIRES(mutex_);  // the id of the last operation
  uint64_t PrepareLong() TG_REQUIRES(mutex_);      // likewise; releases it meanwhile
  void PopQueued(size_t operations) TG_REQUIRES(mutex_);
  void PrepareAcknowledgement() TG_REQUIRES(mutex_);
  uint64_t AcknowledgedLocked() TG_REQUIRES(mutex_);
  bool PrepareMessage(uint64_t id, Long& out);
  void Finish(const absl::Status& why);

  // Of a resumable session. Move, Reopen and KeepAlive release the mutex meanwhile.
  void Keep();
  bool MayMoveLocked() const TG_REQUIRES(mutex_);
  void Move() TG_REQUIRES(mutex_);
  void Reopen() TG_REQUIRES(mutex_);
  void KeepAlive() TG_REQUIRES(mutex_);
  void CloseSession();
  absl::Status Opened(const v1::OpenResult& result);
  std::vector<Sent> TakenLocked(uint64_t id) TG_REQUIRES(mutex_);
  SteadyTime GiveUpAtLocked() const TG_REQUIRES(mutex_);
  SteadyTime OpenedByLocked() const TG_REQUIRES(mutex_);
  bool MayResumeLocked(absl::Status* why) TG_REQUIRES(mutex_);

  absl::Status Receive();
  absl::Status Answered(const v1::ExecuteResponse& response, const Envelope& envelope);
  absl::Status Complete(Pending& pending, const v1::ExecuteResponse& response,
                        const Envelope& envelope, bool* finished);
  absl::Status TakeChunk(ReadTarget& target, const v1::ExecuteResponse& response,
                         const Envelope& envelope, bool* finished);
  absl::Status RecordError(const char* what, uint64_t id, absl::StatusCode code,
                           std::string_view message);

  Connection& connection_;
  const SessionOptions options_;
  TransferMeter* const meter_;
  const std::shared_ptr<PayloadSlices> slices_ = std::make_shared<PayloadSlices>();
  const std::shared_ptr<ChunkPool> chunks_ = std::make_shared<ChunkPool>(kChunkBytes);
  grpc::ByteBuffer incoming_;  // of the call at hand
  grpc::ByteBuffer outgoing_;  // of the thread that set writing_

  const Future<SessionTicket> ticket_;
  const std::shared_ptr<PumpLater> pump_later_ = std::make_shared<PumpLater>(this);

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Outgoing> queue_ TG_GUARDED_BY(mutex_);
  size_t queued_ TG_GUARDED_BY(mutex_) = 0;            // operations in it
  std::deque<Pending> pending_ TG_GUARDED_BY(mutex_);  // popped by the reader only
  uint64_t next_id_ TG_GUARDED_BY(mutex_) = 2;         // 1 is that of Open
  uint64_t next_handle_ TG_GUARDED_BY(mutex_) = 1;
  int silent_ TG_GUARDED_BY(mutex_) = 0;  // operations since the last one that is answered
  // Messages that the transport may hold back for the next one.
  int held_ TG_GUARDED_BY(mutex_) = 0;
  bool ended_ TG_GUARDED_BY(mutex_) = false;   // nothing will be read any more
  bool failed_ TG_GUARDED_BY(mutex_) = false;  // broken_ is final, and so is what pending_ had
  bool done_ TG_GUARDED_BY(mutex_) = false;
  bool ended_in_order_ TG_GUARDED_BY(mutex_) = false;
  bool closing_ TG_GUARDED_BY(mutex_) = false;  // no other call will be made
  absl::Status first_error_ TG_GUARDED_BY(mutex_);
  absl::Status broken_ TG_GUARDED_BY(mutex_);  // of the connection

  // Of the call at hand, which only the keeper replaces, when it is done.
  std::shared_ptr<ExecuteTransport> call_ TG_GUARDED_BY(mutex_);
  int starting_ TG_GUARDED_BY(mutex_) = 0;
  bool writing_ TG_GUARDED_BY(mutex_) = false;
  bool open_sent_ TG_GUARDED_BY(mutex_) = false;
  bool open_ TG_GUARDED_BY(mutex_) = false;        // it was answered
  bool call_ended_ TG_GUARDED_BY(mutex_) = false;  // nothing will be read of it any more
  bool released_ TG_GUARDED_BY(mutex_) = false;
  bool call_done_ TG_GUARDED_BY(mutex_) = false;

  // Of a resumable session.
  std::thread keeper_;
  ConditionVariable wake_;  // the keeper
  std::deque<Sent> sent_ TG_GUARDED_BY(mutex_);
  // The first of sent_ that was not sent over this call.
  size_t repeat_ TG_GUARDED_BY(mutex_) = 0;
  int64_t sent_bytes_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t received_ TG_GUARDED_BY(mutex_) = 0;  // the last operation whose answer has arrived
  // Since the last acknowledgement: answers, and bytes of reads in them, which the server keeps.
  int unacknowledged_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t unacknowledged_bytes_ TG_GUARDED_BY(mutex_) = 0;
  // They are acknowledged even though no operation carries that.
  bool acknowledges_ TG_GUARDED_BY(mutex_) = false;
  std::string token_ TG_GUARDED_BY(mutex_);  // empty: never opened
  uint64_t epoch_ TG_GUARDED_BY(mutex_) = 0;
  std::chrono::milliseconds lease_ TG_GUARDED_BY(mutex_){0};
  std::chrono::milliseconds grace_ TG_GUARDED_BY(mutex_){0};
  SteadyTime broken_at_ TG_GUARDED_BY(mutex_);  // when the connection broke, where it is broken
  SteadyTime resume_at_ TG_GUARDED_BY(mutex_);
  SteadyTime keep_alive_at_ TG_GUARDED_BY(mutex_);
  int attempts_ TG_GUARDED_BY(mutex_) = 0;  // to resume it, since it broke
  std::minstd_rand random_ TG_GUARDED_BY(mutex_){std::random_device{}()};
  // To a bulk socket. Until it is over, successful or not, no operation is sent.
  bool moving_ TG_GUARDED_BY(mutex_) = false;
  int moves_ TG_GUARDED_BY(mutex_) = 0;        // begun since an operation was answered on a socket
  SteadyTime moved_at_ TG_GUARDED_BY(mutex_);  // to the connection at hand
  std::shared_ptr<ExecuteTransport> next_ TG_GUARDED_BY(mutex_);    // in place of another call
  std::shared_ptr<BulkSocketOpener> opener_ TG_GUARDED_BY(mutex_);  // the keeper's, likewise
  // The keeper's call, to be cancelled.
  grpc::ClientContext* unary_ TG_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace telegrad
