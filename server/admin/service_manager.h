// The service manager that started the daemon, such as systemd. The daemon notifies it when it is
// ready, drains or is alive, and takes listening sockets that it has opened. The protocol is
// documented in sd_notify(3) and sd_listen_fds(3): one datagram of KEY=VALUE lines, and two
// environment variables. It is implemented here because libsystemd, as a shared library, would be
// loaded into every daemon, in containers too, for these few lines.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

struct PassedSocket {
  int fd = -1;          // listening
  std::string name;     // FileDescriptorName= of the socket unit; "unknown" where it has none
  std::string address;  // as gRPC writes it: HOST:PORT, [HOST]:PORT or unix:PATH
  bool is_unix = false;
  bool is_local = false;  // reachable from this machine only
};

class ServiceManager {
 public:
  // From NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID, LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES,
  // which are then removed from the environment: they are not for the processes that the daemon
  // starts.
  static absl::StatusOr<ServiceManager> FromEnvironment();

  // Lines of KEY=VALUE. Nothing happens without a service manager; a failure is logged once.
  void Notify(std::string_view state);

  // How often Notify("WATCHDOG=1") has to come at least; zero: never.
  std::chrono::microseconds watchdog() const { return watchdog_; }
  const std::vector<PassedSocket>& sockets() const { return sockets_; }

 private:
  std::string socket_;
  std::chrono::microseconds watchdog_{};
  std::vector<PassedSocket> sockets_;
  bool failed_ = false;
};

}  // namespace telegrad
