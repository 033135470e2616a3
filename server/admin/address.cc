// Parses HOST:PORT, unix:PATH and systemd:NAME, and says whether other machines can reach the
// address.
#include "server/admin/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <charconv>

#include "engine/base/status.h"

namespace telegrad {
namespace {

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  ListenAddress address{.text = std::string(text), .host = {}};
  if (text.starts_with("unix:")) {
    const size_t length = text.size() - 5;
    if (length == 0 || length >= sizeof(sockaddr_un::sun_path)) {
      return InvalidArgument("\"", text, "\": the path of a unix socket has 1 to ",
                             sizeof(sockaddr_un::sun_path) - 1, " bytes");
    }
    address.is_unix = address.is_local = true;
    return address;
  }
  const size_t colon = text.rfind(':');
  int port = -1;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size()) port = -1;
  }
  std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    host = {};
  }
  if (host.empty() || port < 0 || port > 65535) {
    return InvalidArgument("\"", text,
                           "\" is not an address; expected HOST:PORT, [IPV6]:PORT or unix:PATH");
  }
  address.host = std::string(host);
  address.is_local = IsLoopback(address.host);
  return address;
}

}  // namespace telegrad
