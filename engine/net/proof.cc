#include "engine/net/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>

namespace telegrad {

std::string Prove(std::string_view secret, Prover who, std::string_view nonce) {
  std::string text(who == Prover::kClient ? "telegrad bulk client" : "telegrad bulk server");
  text += nonce;
  std::string proof(kProofBytes, '\0');
  unsigned size = 0;
  const auto* out = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                         reinterpret_cast<unsigned char*>(proof.data()), &size);
  if (out == nullptr || size != kProofBytes) std::abort();  // only without memory
  return proof;
}

bool IsProof(std::string_view shown, std::string_view secret, Prover who, std::string_view nonce) {
  const std::string proof = Prove(secret, who, nonce);
  return shown.size() == proof.size() &&
         CRYPTO_memcmp(shown.data(), proof.data(), proof.size()) == 0;
}

}  // namespace telegrad
