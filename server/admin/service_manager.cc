// Reads and removes the environment variables of the service manager, checks the sockets that it
// has passed, and sends states as datagrams.
#include "server/admin/service_manager.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "engine/base/status.h"
#include "engine/base/unique_fd.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START
constexpr int64_t kMaxPassed = 64;

// Reads a variable and removes it.
std::string Take(const char* name) {
  const char* value = std::getenv(name);
  std::string out = value == nullptr ? "" : value;
  unsetenv(name);
  return out;
}

std::optional<int64_t> ToNumber(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Field number `n` of a list that colons separate.
std::string Field(std::string_view list, int64_t n) {
  for (; n > 0 && !list.empty(); --n) {
    const size_t colon = list.find(':');
    list = colon == std::string_view::npos ? std::string_view() : list.substr(colon + 1);
  }
  return std::string(list.substr(0, list.find(':')));
}

absl::StatusOr<PassedSocket> Describe(int fd, std::string name) {
  PassedSocket out{.fd = fd, .name = std::move(name), .address = {}};
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument("socket ", out.name, " (descriptor ", fd,
                           ") that the service manager passed ", why);
  };
  int type = 0, listening = 0;
  socklen_t size = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return refuse("is not a socket");
  if (type != SOCK_STREAM) return refuse("is not of the type SOCK_STREAM; use ListenStream=");
  size = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
    return refuse("does not listen; use Accept=no");
  }
  sockaddr_storage address{};
  size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return refuse("has no address");
  }
  char text[INET6_ADDRSTRLEN];
  if (address.ss_family == AF_UNIX) {
    out.is_unix = out.is_local = true;
    const auto& local = reinterpret_cast<const sockaddr_un&>(address);
    out.address = StrCat(
        "unix:", std::string(local.sun_path, strnlen(local.sun_path, sizeof(local.sun_path))));
  } else if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    out.is_local = (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    out.address = StrCat(text, ":", ntohs(v4.sin_port));
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    out.is_local = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    out.address = StrCat("[", text, "]:", ntohs(v6.sin6_port));
  } else {
    return refuse("is neither of TCP nor a unix socket");
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return out;
}

}  // namespace

absl::StatusOr<ServiceManager> ServiceManager::FromEnvironment() {
  ServiceManager out;
  out.socket_ = Take("NOTIFY_SOCKET");
  const std::string watchdog = Take("WATCHDOG_USEC"), watchdog_pid = Take("WATCHDOG_PID");
  if (watchdog_pid.empty() || ToNumber(watchdog_pid) == getpid()) {
    out.watchdog_ = std::chrono::microseconds(ToNumber(watchdog).value_or(0));
  }
  const std::string pid = Take("LISTEN_PID"), count = Take("LISTEN_FDS"),
                    names = Take("LISTEN_FDNAMES");
  if (ToNumber(pid) != getpid()) return out;  // they are for another process
  const std::optional<int64_t> sockets = ToNumber(count);
  if (!sockets || *sockets > kMaxPassed) {
    return InvalidArgument("LISTEN_FDS: \"", count, "\" is not a number from 0 to ", kMaxPassed);
  }
  for (int64_t i = 0; i < *sockets; ++i) {
    const std::string name = Field(names, i);
    TG_ASSIGN_OR_RETURN(PassedSocket socket, Describe(kFirstPassed + static_cast<int>(i),
                                                      name.empty() ? "unknown" : name));
    out.sockets_.push_back(std::move(socket));
  }
  return out;
}

void ServiceManager::Notify(std::string_view state) {
  if (socket_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  int error = 0;
  if (socket_.size() > sizeof(address.sun_path)) {
    error = ENAMETOOLONG;
  } else {
    std::memcpy(address.sun_path, socket_.data(), socket_.size());
    // An address without a file begins with a zero byte, which NOTIFY_SOCKET writes as "@".
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
    const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
    if (sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), size) < 0) {
      error = errno;
    }
  }
  if (error == 0 || std::exchange(failed_, true)) return;
  Log(LogLevel::kWarning, "service_manager_not_told", {{"why", std::strerror(error)}});
}

}  // namespace telegrad
