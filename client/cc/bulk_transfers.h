// Large writes and reads of a session, beside its operations: cut into chunks that travel over
// several connections at once, each over whichever has room. They are bulk sockets where the server
// offers them and this client can reach them, otherwise gRPC connections. A broken connection is
// replaced; then only the bytes of an upload that the server reports as missing are sent again, and
// only the bytes of a download that have not arrived are requested again.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/cc/connection.h"
#include "client/cc/future.h"
#include "client/cc/lent_memory.h"
#include "client/cc/transfer_meter.h"
#include "engine/base/mutex.h"
#include "grpcpp/client_context.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

// Identifies a session to the server; valid only for the caller that opened it.
struct SessionTicket {
  std::string token;
  uint64_t epoch = 0;
};

struct TransferRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class BulkStream;

class BulkTransfers {
 public:
  // `broken` is called once, when an upload cannot be completed: no operation after it will begin.
  BulkTransfers(Connection* connection, Future<SessionTicket> ticket, TransferMeter* meter,
                std::function<void(const absl::Status&)> broken);
  ~BulkTransfers();
  // Ends all transfers. No memory passed to the other functions is in use afterwards. This object
  // exists until the futures passed to them have their results.
  void Close();

  // Sends the bytes of the Write with this number, until that is acknowledged. They are sent before
  // the acknowledgement is requested, because that request may have to wait for room.
  void Upload(uint64_t transfer, std::span<const std::byte> data, std::shared_ptr<const void> keep);
  void EndUpload(uint64_t transfer, const Future<Done>& acknowledged);
  // Fetches the bytes of the Read with this number, once that is answered; then `done` is set.
  // `lent`: see RemoteSession::ReadTold.
  void Download(uint64_t transfer, std::span<std::byte> into, std::shared_ptr<LentMemory> lent,
                const Future<Done>& ready, Future<Done> done);

 private:
  friend class BulkStream;
  friend class GrpcBulkStream;
  friend class SocketBulkStream;
  using Clock = std::chrono::steady_clock;

  struct Job {  // with the mutex held, but for what is constant
    uint64_t transfer = 0;
    std::span<const std::byte> data;   // of an upload
    std::shared_ptr<const void> keep;  // what it lies in
    std::span<std::byte> into;         // of a download
    std::shared_ptr<LentMemory> lent;  // likewise; or null
    std::optional<Future<Done>> done;  // likewise
    std::deque<TransferRange> todo;    // to be sent or asked for
    uint64_t received = 0;
    int writing = 0;                     // streams that write to `into`
    std::optional<absl::Status> failed;  // the result to set when none does
    int sending = 0;                     // streams that read from `data`
    int errors = 0;                      // chunks that did not arrive well, on either side
  };
  using JobRef = std::shared_ptr<Job>;
  struct Sent {
    JobRef job;
    TransferRange range;
  };
  // What was sent of an upload, whose memory it does not hold.
  struct SentRange {
    uint64_t transfer = 0;
    TransferRange range;
  };
  // One of the connections.
  struct Slot {
    std::shared_ptr<BulkStream> stream;
    Clock::time_point next = {};                 // not opened before
    std::optional<Clock::time_point> broken_at;  // since when it has not worked
    absl::Status dead;                           // why it is not opened any more
  };

  void Add(JobRef job);
  void Keep();  // the thread that opens streams and repeats the transfers of broken ones
  // Whether it is to be opened, now or later.
  bool IsWanted(const Slot& slot) const TG_REQUIRES(mutex_);
  bool HasWork() const TG_REQUIRES(mutex_);  // for the keeper
  // They may release the mutex meanwhile.
  void Open(Slot& slot) TG_REQUIRES(mutex_);
  void Mend(Slot& slot) TG_REQUIRES(mutex_);
  std::vector<TransferRange> StillMissing(uint64_t transfer, std::vector<TransferRange> sent)
      TG_REQUIRES(mutex_);
  std::optional<Sent> NextChunk(uint64_t credit, uint64_t chunk_bytes) TG_REQUIRES(mutex_);
  std::optional<Sent> NextPull() TG_REQUIRES(mutex_);
  void EndLocked(uint64_t transfer) TG_REQUIRES(mutex_);
  [[nodiscard]] std::function<void()> FailDownloadLocked(const JobRef& job,
                                                         const absl::Status& status)
      TG_REQUIRES(mutex_);
  // The callbacks to call once the mutex is released.
  [[nodiscard]] std::function<void()> FailLocked(const absl::Status& status) TG_REQUIRES(mutex_);

  void Kick();
  void Failed(const JobRef& job, const absl::Status& status);

  Connection* const connection_;
  TransferMeter* const meter_;
  const std::function<void(const absl::Status&)> broken_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<SessionTicket> ticket_ TG_GUARDED_BY(mutex_);
  bool sockets_ TG_GUARDED_BY(mutex_);  // are tried
  bool sockets_worked_ TG_GUARDED_BY(mutex_) = false;
  bool closing_ TG_GUARDED_BY(mutex_) = false;
  absl::Status failed_ TG_GUARDED_BY(mutex_);
  // The operations that come first have their bytes first.
  std::map<uint64_t, JobRef> jobs_ TG_GUARDED_BY(mutex_);
  std::deque<uint64_t> releases_ TG_GUARDED_BY(mutex_);
  std::vector<Slot> slots_ TG_GUARDED_BY(mutex_);
  grpc::ClientContext* asks_ TG_GUARDED_BY(mutex_) = nullptr;  // the keeper's call
  std::thread keeper_ TG_GUARDED_BY(mutex_);                   // once there is a job
};

}  // namespace telegrad
