// The local socket: processes of this machine are identified by the uid that the kernel reports
// (SO_PEERCRED) and may pass file descriptors (SCM_RIGHTS). gRPC supports neither.
//
// A unix socket of packets (SOCK_SEQPACKET). A request is one packet: a verb, and after a space
// what it needs; descriptors come along with it. Each is answered by one packet, "ok ..." or "error
// ...".
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"
#include "engine/net/unix_listener.h"
#include "server/admin/limited_log.h"
#include "server/identity/principal.h"
#include "server/identity/slow_closer.h"

namespace telegrad {

// Tenants by uid. The daemon's own user is always known, and an administrator.
class LocalUsers {
 public:
  // Parses rows of the form "UID=TENANT".
  static absl::StatusOr<LocalUsers> Parse(std::span<const std::string> rows);
  absl::StatusOr<Principal> Find(uid_t uid) const;
  bool others() const;  // besides the daemon's own user

 private:
  std::map<uid_t, std::string> tenants_;
};

class LocalSocket {
 public:
  struct Request {
    Principal principal;
    std::string_view text;              // after the verb
    std::vector<UniqueFd> descriptors;  // of memory alone: they are closed without waiting
    // For a handler that has no answer yet: from any thread, once.
    std::function<void(const absl::StatusOr<std::string>&)> answer_later;
  };
  // Called on the socket's thread; does not wait. The result follows "ok "; where it is nullopt,
  // the request is answered later.
  using Handler = std::function<absl::StatusOr<std::optional<std::string>>(Request)>;
  using Handlers = std::map<std::string, Handler, std::less<>>;  // by verb

  // UNAVAILABLE if another process listens at `path`.
  static absl::StatusOr<std::unique_ptr<LocalSocket>> Start(const std::string& path,
                                                            LocalUsers users, Handlers handlers);
  ~LocalSocket();  // no request is answered any more

 private:
  struct Connection {
    std::shared_ptr<UniqueFd> fd;  // shared with handlers that answer later
    uid_t uid = 0;
    absl::StatusOr<Principal> principal;  // an error: not known
  };
  LocalSocket(LocalUsers users, Handlers handlers, UnixListener listener, UniqueFd stop);
  void Serve();
  void Accept();
  bool Answer(Connection& connection);  // false: it is over
  void HangUp(size_t connection);

  const LocalUsers users_;
  const Handlers handlers_;
  const UniqueFd listener_, stop_;
  UnixSocketFile file_;  // of the listener, without which its number may be another file's
  std::vector<Connection> connections_;
  SlowCloser closer_;
  LimitedLog refused_{LogLevel::kWarning, "local_user_refused"};
  std::thread thread_;
};

}  // namespace telegrad
