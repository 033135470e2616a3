// TCP connections by address.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

// To HOST:PORT or [IPV6]:PORT, whichever of its addresses answers first in order. UNAVAILABLE if
// none does until the deadline.
absl::StatusOr<UniqueFd> ConnectTcp(std::string_view address,
                                    std::chrono::steady_clock::time_point deadline);

// A listening socket at HOST:PORT; port 0 takes a free one. UNAVAILABLE if it is taken.
absl::StatusOr<UniqueFd> ListenTcp(std::string_view address);
// One for each address of the host, all at the same port; 0.0.0.0 and [::] both take connections of
// IPv4 and of IPv6. UNAVAILABLE if it is taken at any.
absl::StatusOr<std::vector<UniqueFd>> ListenTcpAll(std::string_view address);
int PortOf(const UniqueFd& listener);  // at which it listens

// What both ends set on a connection: no delay of small messages, and an end to it within about a
// minute when the other machine disappears without closing its connection.
void TuneTcp(const UniqueFd& connection);

}  // namespace telegrad
