// The address of the other end of a socket, as gRPC writes it.
#pragma once

#include <string>
#include <string_view>

namespace telegrad {

// "ipv4:ADDRESS:PORT" or "ipv6:[ADDRESS]:PORT"; an address of IPv4 within one of IPv6 is the
// former. Empty for other sockets.
std::string PeerOf(int fd);

// gRPC escapes the brackets; without the escapes it is what PeerOf says.
std::string UnescapedPeer(std::string_view peer);

}  // namespace telegrad
