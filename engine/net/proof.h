// How two ends show each other on a connection that they know the same secret, without saying it:
// each has the other's proof of a number that was used only once. Who listens learns nothing that
// is good for another connection. What follows is not protected by it; TLS is there for that.
#pragma once

#include <string>
#include <string_view>

namespace telegrad {

inline constexpr size_t kNonceBytes = 16, kProofBytes = 32;
// Of a ticket for a bulk socket.
inline constexpr size_t kIdentityBytes = 16, kSecretBytes = 32;

enum class Prover { kClient, kServer };

// HMAC-SHA-256 (RFC 2104) under the secret of who proves it and the client's nonce.
std::string Prove(std::string_view secret, Prover who, std::string_view nonce);
// In a time that does not depend on where they differ.
bool IsProof(std::string_view shown, std::string_view secret, Prover who, std::string_view nonce);

// What both ends know of the ticket that follows one, once that has been used with the nonce: see
// Send in data.proto.
struct NextTicket {
  std::string identity;
  std::string secret;
};
NextTicket NextTicketOf(std::string_view secret, std::string_view nonce);

}  // namespace telegrad
