// Accepts connections of bulk sockets, up to their limit, and gives each a thread. From a peer that
// has not shown a ticket it reads only a handshake and one short message.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"
#include "server/admin/limited_log.h"
#include "server/data/bulk_connection.h"

namespace telegrad {

struct BulkOptions {
  std::vector<std::string> addresses;  // HOST:PORT; port 0 takes a free one
  bool tls = false;                    // under the key of the ticket, or by certificate
  int64_t most = 128;                  // connections at a time
};

// Thread-safe.
class BulkListener {
 public:
  // UNAVAILABLE where an address is taken. `metrics` outlives this.
  static absl::StatusOr<std::unique_ptr<BulkListener>> Start(const BulkOptions& options,
                                                             Metrics* metrics);
  ~BulkListener() { Stop(); }
  // Ends all connections and takes no more. May be called again.
  void Stop();

  const std::vector<std::string>& addresses() const { return addresses_; }  // with their ports
  bool tls() const { return tls_; }
  // A ticket for one connection of this session. RESOURCE_EXHAUSTED where there are too many.
  // `operations`: see BulkTickets::Issue.
  absl::StatusOr<PresharedKey> Admit(const std::shared_ptr<TransferOwner>& session,
                                     BulkTickets::ServeOperations operations = nullptr) {
    return tickets_.Issue(session, std::move(operations));
  }
  // A ticket for one of another server.
  PresharedKey AdmitPeer(const std::shared_ptr<TransferOwner>& session,
                         const BulkTickets::Peer& peer, int64_t lifetime_ms) {
    return tickets_.IssueToPeer(session, peer, lifetime_ms);
  }

  // Limit of connections that have not shown a ticket yet; one more replaces the oldest.
  static constexpr int64_t kMostWaiting = 32;

 private:
  struct Row {
    std::shared_ptr<BulkConnection> connection;
    std::thread thread;
    bool evicted = false;
  };

  BulkListener(const BulkOptions& options, Metrics* metrics);
  void Listen();
  bool Accept(const UniqueFd& listener);
  void Serve(uint64_t id, std::shared_ptr<BulkConnection> connection);
  void JoinEnded();
  bool MakeRoomLocked() TG_REQUIRES(mutex_);  // for one that has shown no ticket

  const bool tls_;
  Metrics* const metrics_;
  std::vector<std::string> addresses_;
  std::vector<UniqueFd> listeners_;
  const UniqueFd stop_;
  BulkTickets tickets_;
  LimitedLog refused_{LogLevel::kWarning, "bulk_socket_refused"};

  Mutex mutex_;
  std::map<uint64_t, Row> rows_ TG_GUARDED_BY(mutex_);
  uint64_t last_id_ TG_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> ended_ TG_GUARDED_BY(mutex_);  // to be joined
  std::thread thread_;
};

}  // namespace telegrad
