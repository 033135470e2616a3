// The exchange of buffers with other servers: this daemon sends buffers to servers whose bulk
// addresses its operator allows (--peer), and admits transfers of others into buffers here. The
// tenants of both ends are those of the sessions in which a client asks for it.
//
// A server that connected wherever a client says would be a way into networks that the client
// cannot reach; so without --peer nothing is sent.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/cancellation.h"
#include "engine/base/mutex.h"
#include "engine/net/peer_key.h"
#include "engine/net/psk_tls.h"
#include "server/admin/metrics.h"
#include "server/data/peer_send.h"
#include "server/data/transfers.h"
#include "server/pool/session_queues.h"

namespace telegrad {

class BulkListener;

struct PeerLimits {
  // Of a ticket until its first use, at most: what is to be sent may be behind much work.
  int64_t lifetime_ms = 86'400'000;
  int64_t stall_ms = 60'000;  // between two bytes for a buffer that waits for them
  int sends = 4;              // of one session at a time; more wait
  PeerSend::Patience patience = {};
};

// Thread-safe.
class Peers {
 public:
  // `allowed`: HOST:PORT, or HOST:* for every port. INVALID_ARGUMENT names one of another form.
  static absl::StatusOr<std::unique_ptr<Peers>> Create(std::vector<std::string> allowed,
                                                       Metrics* metrics,
                                                       const PeerLimits& limits = {});
  // Ends what is under way.
  ~Peers();

  // Where other servers connect to; null: nothing is admitted. Before the first call.
  void SetBulk(BulkListener* bulk) { bulk_ = bulk; }

  const std::string& public_key() const { return key_->public_key(); }
  const std::vector<std::string>& allowed() const { return allowed_; }

  // PERMISSION_DENIED says how the operator allows it.
  absl::Status CheckAllowed(std::string_view address) const;
  // Sends it when its turn among those of the session has come, in the order of the calls.
  void Send(PeerSend::Request request, const std::shared_ptr<const SessionQueues>& session);

  struct Ticket {
    uint64_t transfer = 0;
    PresharedKey key;
    bool tls = false;
    int64_t lifetime_ms = 0;
  };
  // A ticket for the server with that public key. The upload ends if no byte arrives before the
  // ticket's end, or if the bytes stop. `request`, unless 0, is the number of the request in its
  // session: for one that was sent again, it is the same ticket, whose answer was lost.
  absl::StatusOr<Ticket> Admit(const std::shared_ptr<TransferOwner>& session,
                               const std::string& peer_key, uint64_t bytes, int64_t lifetime_ms,
                               uint64_t request = 0);
  // Ends the upload when the operation that receives it is cancelled.
  void EndWith(const std::shared_ptr<Upload>& upload,
               std::shared_ptr<const Cancellation> cancellation);

 private:
  // Of a session. If tenants had lanes, a send could wait behind one of another session that needs
  // it to be over.
  struct Lane {
    std::deque<std::shared_ptr<PeerSend>> waiting;
    int threads = 0;
  };
  // An upload that another server sends.
  struct Incoming {
    std::weak_ptr<TransferOwner> session;
    std::weak_ptr<Upload> upload;
    std::string peer_key;
    uint64_t bytes = 0, request = 0;
    Ticket ticket = {};
    std::shared_ptr<const Cancellation> cancellation;  // under the mutex; null: none yet
    // Of the thread that watches.
    uint64_t arrivals = 0;
    int64_t until_ns = 0;  // SteadyNs, unless more has arrived
  };

  Peers(std::vector<std::string> allowed, std::unique_ptr<PeerKey> key, Metrics* metrics,
        const PeerLimits& limits);
  void Work(std::shared_ptr<const SessionQueues> session);
  std::vector<std::shared_ptr<PeerSend>> TakeCancelledLocked() TG_REQUIRES(mutex_);
  const Incoming* FindRequestLocked(const TransferOwner* session, uint64_t request) const
      TG_REQUIRES(mutex_);
  void Watch();
  bool IsOver(Incoming& incoming, const Cancellation* cancellation) const;

  const std::vector<std::string> allowed_;
  const std::unique_ptr<PeerKey> key_;
  Metrics* const metrics_;
  const PeerLimits limits_;
  BulkListener* bulk_ = nullptr;

  Mutex mutex_;
  ConditionVariable changed_;
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::map<const SessionQueues*, Lane> lanes_ TG_GUARDED_BY(mutex_);
  int waiting_ TG_GUARDED_BY(mutex_) = 0;  // in all lanes
  std::vector<std::shared_ptr<PeerSend>> sending_ TG_GUARDED_BY(mutex_);
  int threads_ TG_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Incoming>> incoming_ TG_GUARDED_BY(mutex_);
  std::thread watch_;
};

}  // namespace telegrad
