// Keys that verify the signatures of tokens. The algorithm is a property of the key, never of the
// token: a token that names another algorithm is refused.
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
  // A fingerprint of the file's content, which tells a replaced key of the same name from the old
  // one.
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
