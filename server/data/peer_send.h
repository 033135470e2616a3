// One Send on its way: the bytes of a buffer, uploaded to a transfer that another server has
// admitted, over a bulk socket of which this server is the client. When the connection breaks, the
// next one carries what the other server says is missing, under the ticket that follows the used
// one (see Send in data.proto).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "devices/api/cancellation.h"
#include "engine/base/mutex.h"
#include "engine/net/checksum.h"
#include "engine/net/peer_key.h"
#include "engine/net/psk_tls.h"
#include "engine/net/stream_socket.h"
#include "server/admin/metrics.h"
#include "server/data/byte_ranges.h"
#include "server/data/download.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

class PeerSend {
 public:
  struct Request {
    std::string address;  // HOST:PORT, which is allowed
    uint64_t transfer = 0;
    PresharedKey ticket;
    bool tls = false;
    std::shared_ptr<const Download> bytes;
    std::shared_ptr<const Cancellation> cancellation;
    // Called once, on the thread of Run or End, when nothing of the buffer is in use any more.
    std::function<void(const absl::Status&)> done;
  };
  // It ends when the other server has got no further for so long: while it cannot be reached, and
  // while it answers that it has no room.
  struct Patience {
    std::chrono::milliseconds reach{15'000}, room{300'000};
    uint64_t again = uint64_t{1} << 30;  // bytes sent beyond four times those of the buffer
  };

  // `key` and `metrics` outlive this.
  PeerSend(Request request, const PeerKey* key, Metrics* metrics, Patience patience);

  // Blocks until the other server says that the transfer is over, or it cannot be completed.
  void Run();
  // The end of Run, or in place of it: nothing is sent any more.
  void End(const absl::Status& status);
  // From any thread: the error if the request was cancelled.
  absl::Status Cancelled() const { return request_.cancellation->Check(); }
  // From any thread: Run ends soon.
  void Stop();

 private:
  struct Fetching;
  // What the other server has agreed to on a connection.
  struct Terms {
    uint64_t credit = 0, most_credit = 0, chunk_bytes = 0;
    Checksum checksum = Checksum::kCrc32c;
    std::deque<ByteRange> todo;
  };

  absl::Status RunUntilOver();
  absl::Status Attempt();
  absl::Status Connect();
  absl::StatusOr<Terms> Attach();
  absl::Status SendAll(Terms& terms);
  absl::Status SendChunk(Terms& terms, ByteRange range, Fetching& fetched);
  absl::Status TakeMessage(Terms& terms);
  absl::Status TakeRefusal(Terms& terms, const v1::Refused& refused);
  std::unique_ptr<Fetching> Fetch(ByteRange range) const;
  absl::Status Await(const Fetching& fetched);  // or Stop
  bool Pause(std::chrono::milliseconds time);   // false: it was stopped

  Request request_;
  const PeerKey& key_;
  Metrics* const metrics_;
  const Patience patience_;

  // Of the thread of Run. The tickets that may be valid, the likeliest first.
  std::deque<PresharedKey> tickets_;
  uint64_t missing_ = UINT64_MAX;  // the fewest bytes of which the other server has said so
  std::optional<std::chrono::steady_clock::time_point> attached_at_;  // the last time, if it was
  bool sent_any_ = false;                                             // on the connection
  uint64_t sent_ = 0;                                                 // on all connections
  int errors_ = 0;                    // chunks that did not arrive well
  std::optional<absl::Status> over_;  // what the other server said at the end
  bool refused_ = false;              // the last ticket was

  // Of the thread of Run, which alone replaces it; under the mutex where it changes or another
  // thread uses it.
  std::shared_ptr<StreamSocket> socket_;
  Mutex mutex_;
  ConditionVariable wake_;
  bool stopped_ TG_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Timeline> awaited_ TG_GUARDED_BY(mutex_);  // of the chunk that Run waits for
};

}  // namespace telegrad
