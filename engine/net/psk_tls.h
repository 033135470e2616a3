// TLS 1.3 between two ends that share a secret and nothing else: no certificates, no authorities.
// Who does not know the secret cannot finish the handshake, on either side (external pre-shared
// keys with (EC)DHE, RFC 8446, sections 2.2 and 4.2.11; so what was recorded stays secret when the
// secret does not).
//
// TLS libraries without external keys, such as Python's, can use a server that also has a
// certificate of its own: their client compares its SHA-256 with one that it got on another way.
// Such a client has proved nothing when the handshake is over.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/net/stream_socket.h"

namespace telegrad {

struct PresharedKey {
  std::string identity;  // travels in the clear; at most 64 bytes
  std::string secret;    // 16 to 48 random bytes
};

// The ends, before their Handshake. It fails with UNAVAILABLE where the other end does not know the
// key. `find_secret` has the secret of an identity, nothing if there is none.
using FindSecret = std::function<std::optional<std::string>(std::string_view identity)>;
absl::StatusOr<std::unique_ptr<StreamSocket>> TlsClient(UniqueFd fd,
                                                        std::chrono::milliseconds stall,
                                                        PresharedKey key);
absl::StatusOr<std::unique_ptr<StreamSocket>> TlsServer(UniqueFd fd,
                                                        std::chrono::milliseconds stall,
                                                        FindSecret find_secret);
// The same for clients with and without a key; the latter are shown the certificate of this
// process (own_certificate.h).
absl::StatusOr<std::unique_ptr<StreamSocket>> TlsServerWithCertificate(
    UniqueFd fd, std::chrono::milliseconds stall, FindSecret find_secret);

}  // namespace telegrad
