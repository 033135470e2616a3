// Accepts the connections of all listeners and passes them to gRPC, whose own listeners (1.51.1)
// would stop accepting for good once the process runs out of descriptors. Here a listener continues
// as soon as a descriptor is free, and one that stops accepting is reopened.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"
#include "engine/net/unix_listener.h"
#include "server/admin/address.h"
#include "server/admin/limited_log.h"
#include "server/admin/metrics.h"
#include "server/service/connections.h"

namespace telegrad {

class Acceptor {
 public:
  // Takes over the descriptor of a connection; on the thread of the acceptor.
  using Take = std::function<void(int fd)>;

  // Both outlive this; `metrics` may be null.
  Acceptor(Connections* connections, Metrics* metrics);
  ~Acceptor();

  // Called before Start: listens at `address`, but accepts no connection yet. Returns the address
  // for clients, with the port. `mask` is the umask of a unix socket's file. UNAVAILABLE if it is
  // taken.
  absl::StatusOr<std::string> Listen(const ListenAddress& address, mode_t mask, Take take);
  // The same for a socket that another process has opened and keeps open.
  absl::Status Adopt(const ListenAddress& address, int listener, Take take);
  absl::Status Start();
  // Stops accepting; removes the files of unix sockets. May be called again.
  void Stop();

 private:
  struct Row {
    ListenAddress address;  // with the port that it took
    mode_t mask = 0;
    bool adopted = false;  // another process opens and removes it
    Take take;
    std::vector<UniqueFd> listeners;
    UnixSocketFile file;  // removed before the listener is closed; see UnixSocketFile
  };

  static absl::Status Open(Row& row);
  void Serve();
  bool AcceptSome(const Row& row, const UniqueFd& listener);
  void Failed(Row& row, int error);

  Connections* const connections_;
  Metrics* const metrics_;
  std::vector<Row> rows_;
  UniqueFd stop_;
  LimitedLog failed_{LogLevel::kError, "accept_failed"};
  LimitedLog refused_{LogLevel::kWarning, "connection_refused"};
  std::thread thread_;
};

}  // namespace telegrad
