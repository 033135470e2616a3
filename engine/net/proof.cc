#include "engine/net/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>

namespace telegrad {
namespace {

std::string Hmac(std::string_view secret, std::string text, std::string_view nonce) {
  text += nonce;
  std::string proof(kProofBytes, '\0');
  unsigned size = 0;
  const auto* out = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                         reinterpret_cast<unsigned char*>(proof.data()), &size);
  if (out == nullptr || size != kProofBytes) std::abort();  // only without memory
  return proof;
}

}  // namespace

std::string Prove(std::string_view secret, Prover who, std::string_view nonce) {
  return Hmac(secret, who == Prover::kClient ? "telegrad bulk client" : "telegrad bulk server",
              nonce);
}

NextTicket NextTicketOf(std::string_view secret, std::string_view nonce) {
  return {Hmac(secret, "telegrad bulk next identity", nonce).substr(0, kIdentityBytes),
          Hmac(secret, "telegrad bulk next secret", nonce)};
}

bool IsProof(std::string_view shown, std::string_view secret, Prover who, std::string_view nonce) {
  const std::string proof = Prove(secret, who, nonce);
  return shown.size() == proof.size() &&
         CRYPTO_memcmp(shown.data(), proof.data(), proof.size()) == 0;
}

}  // namespace telegrad
