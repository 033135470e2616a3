// Keys that check signatures of tokens. Each is of one algorithm, which is the key's property and
// never the token's: a token that says another one is refused.
//
//   EdDSA  Ed25519 (RFC 8037)                     ES256  ECDSA on P-256 with SHA-256 (RFC
//   7518, 3.4) RS256  RSASSA-PKCS1-v1_5, SHA-256 (3.3)       HS256  HMAC with SHA-256 (3.2)
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

typedef struct evp_pkey_st EVP_PKEY;

namespace telegrad {

class SignatureKey {
 public:
  // A public key in PEM: Ed25519, EC on P-256, or RSA of at least 2,048 bits.
  static absl::StatusOr<SignatureKey> FromPem(std::string_view pem);
  // At least 256 bits.
  static absl::StatusOr<SignatureKey> FromSecret(std::string secret);

  std::string_view algorithm() const { return algorithm_; }  // as a token's "alg" has it
  bool Verify(std::string_view message, std::string_view signature) const;
  // Of the file's content: another key under the same name has another one.
  size_t fingerprint() const { return fingerprint_; }

 private:
  std::string_view algorithm_;
  std::shared_ptr<EVP_PKEY> key_;
  std::string secret_;  // of HS256
  size_t fingerprint_ = 0;
};

// HMAC-SHA-256.
std::string Hmac(std::string_view secret, std::string_view message);

}  // namespace telegrad
