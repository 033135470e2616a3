// The daemon's gRPC servers: one for each kind of listener, so that each has channel arguments and
// methods of its own. Every one hands all of its calls to a Router.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "server/admin/address.h"
#include "server/admin/service_manager.h"
#include "server/data/bulk_listener.h"
#include "server/identity/authenticator.h"
#include "server/identity/checked_tls.h"
#include "server/identity/tls_files.h"
#include "server/service/acceptor.h"
#include "server/service/call_queue.h"
#include "server/service/connections.h"
#include "server/service/router.h"

namespace telegrad {

struct ListenOptions {
  // Addresses; port 0 takes a free one; "systemd", or "systemd:NAME", stands for the sockets of
  // `passed`, or those of that name.
  std::vector<std::string> compute, data, admin;
  std::vector<PassedSocket> passed;
  // Of bulk sockets; clients are told the first. None: a free port of the first of `compute` where
  // all of these are loopback; "none": no sockets.
  std::vector<std::string> bulk;
  int64_t bulk_sockets = 0;
  TlsFiles tls;                        // of TCP; unix sockets have none
  bool certificates_required = false;  // else a client without one needs a token
  int64_t max_resets = 0;              // see ResetGuard
  int64_t handshake_ms = 0;            // that the handshakes of one may take
  int64_t memory = 0;                  // bytes that gRPC may hold
  bool anywhere = false;  // though other machines reach an address, and callers or bytes are open
};

class Listeners {
 public:
  // Does not listen yet. INVALID_ARGUMENT for an invalid address, for one that other machines could
  // reach without TLS or authentication, and for TLS files that do not fit.
  static absl::StatusOr<std::unique_ptr<Listeners>> Create(const ListenOptions& options,
                                                           bool open_to_all);
  explicit Listeners(const ListenOptions& options);

  // That gRPC may have open. Before Start.
  void LimitConnections(int64_t most) { connections_.Limit(most); }

  // The listener of bulk sockets, whose address clients do not have yet; null where there are none.
  // Called before Start, which publishes its address.
  absl::StatusOr<std::unique_ptr<BulkListener>> StartBulk(Metrics* metrics);
  // Starts to listen and prints the addresses on stdout. UNAVAILABLE if an address is in use.
  // `data_first` receives the data listener's address before any listener takes calls.
  absl::Status Start(const Services& services, Authenticator* authenticator,
                     const Router::FindTenant& find_tenant,
                     const std::function<void(const std::string&)>& data_first, CallWatch* watch,
                     Metrics* metrics);

  // Takes no new calls; cancels those that are not over at the deadline. May be called again, with
  // an earlier one.
  void Shutdown(std::chrono::system_clock::time_point deadline);
  // Ends every present call, so that a Shutdown that waits for them completes.
  void CancelCalls();
  void Wait();

  // Of the calls of clients' sessions, from Start to Shutdown; see CallQueue::queue.
  grpc::CompletionQueue* calls();

 private:
  struct Kind {
    Listener listener;
    const char* says;  // before the address
    std::vector<ListenAddress> addresses;
    std::vector<PassedSocket> passed;
    std::unique_ptr<Router> router;
    // Of each address and socket: where gRPC takes connections of its credentials.
    std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> doors;
    std::unique_ptr<CallQueue> calls;  // of the server
    std::unique_ptr<grpc::Server> server;
  };
  absl::StatusOr<std::string> StartKind(Kind& kind);  // the first address

  const ListenOptions options_;
  BulkOptions bulk_;                 // once it is started, with the ports that it took
  grpc::ResourceQuota memory_;       // of all listeners together
  ResetGuard guard_;                 // of all of them
  std::unique_ptr<CheckedTls> tls_;  // null without TLS; outlives the servers
  Connections connections_;          // likewise
  std::vector<Kind> kinds_;
  std::unique_ptr<Acceptor> acceptor_;  // last: it gives connections to those before
};

}  // namespace telegrad
