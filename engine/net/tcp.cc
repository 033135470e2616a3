#include "engine/net/tcp.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "engine/base/status.h"

namespace telegrad {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> Resolve(std::string_view address, int flags) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) {
    return InvalidArgument("\"", address, "\" is not an address; expected HOST:PORT");
  }
  std::string host(address.substr(0, colon)), port(address.substr(colon + 1));
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(StrCat(address, ": ", gai_strerror(error)));
  }
  return Addresses(found, freeaddrinfo);
}

// 0, or the error.
int ConnectTo(int fd, const addrinfo& to, Clock::time_point deadline) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd polled = {fd, POLLOUT, 0};
  int n;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    n = poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT32_MAX)));
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return n == 0 ? ETIMEDOUT : errno;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

bool HasIpV6() { return UniqueFd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)).valid(); }

// At `port`, unless it is negative. After an error, errno is the reason's.
absl::StatusOr<UniqueFd> ListenAt(const addrinfo& at, int port, std::string_view address) {
  sockaddr_storage where{};
  std::memcpy(&where, at.ai_addr, at.ai_addrlen);
  if (port >= 0 && at.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(where).sin6_port = htons(static_cast<uint16_t>(port));
  } else if (port >= 0) {
    reinterpret_cast<sockaddr_in&>(where).sin_port = htons(static_cast<uint16_t>(port));
  }
  const int one = 1, none = 0;
  UniqueFd fd(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (at.ai_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof(none));
  }
  if (!fd.valid() ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), at.ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    absl::Status status =
        absl::UnavailableError(StrCat("cannot listen on ", address, ": ", std::strerror(error)));
    fd = UniqueFd();  // before errno is set
    errno = error;
    return status;
  }
  return fd;
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectTcp(std::string_view address, Clock::time_point deadline) {
  TG_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address, 0));
  int error = 0;
  int left = 0;
  for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next) ++left;
  for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next, --left) {
    const auto now = Clock::now();
    const auto share = now + std::max(deadline - now, Clock::duration::zero()) / left;
    UniqueFd fd(socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return ResourceExhausted("socket: ", std::strerror(errno));
    error = ConnectTo(fd.get(), *to, share);
    if (error == 0) return fd;
  }
  return absl::UnavailableError(StrCat(address, ": ", std::strerror(error)));
}

absl::StatusOr<UniqueFd> ListenTcp(std::string_view address) {
  TG_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address, AI_PASSIVE));
  return ListenAt(*addresses, /*port=*/-1, address);
}

absl::StatusOr<std::vector<UniqueFd>> ListenTcpAll(std::string_view address) {
  TG_ASSIGN_OR_RETURN(Addresses addresses, Resolve(address, AI_PASSIVE));
  if (address.starts_with("0.0.0.0:") && HasIpV6()) {
    TG_ASSIGN_OR_RETURN(addresses, Resolve(StrCat("[::]", address.substr(7)), AI_PASSIVE));
  }
  std::vector<UniqueFd> all;
  int port = -1;  // as the address says; then, of the first
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    absl::StatusOr<UniqueFd> fd = ListenAt(*at, port, address);
    // A name may stand for addresses that this machine does not have.
    const bool missing = !fd.ok() && (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT);
    if (missing && (!all.empty() || at->ai_next != nullptr)) continue;
    TG_RETURN_IF_ERROR(fd.status());
    port = PortOf(*fd);
    all.push_back(*std::move(fd));
  }
  return all;
}

int PortOf(const UniqueFd& listener) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void TuneTcp(const UniqueFd& connection) {
  constexpr struct {
    int level, name, value;
  } kOptions[] = {{IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, 40}, {IPPROTO_TCP, TCP_KEEPINTVL, 10},
                  {IPPROTO_TCP, TCP_KEEPCNT, 2},   {IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000}};
  for (const auto& option : kOptions) {
    setsockopt(connection.get(), option.level, option.name, &option.value, sizeof(option.value));
  }
}

}  // namespace telegrad
