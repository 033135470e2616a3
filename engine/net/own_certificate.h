// A certificate that this process makes for itself when it is first needed, with a key that never
// leaves it. No authority signs it: who has its SHA-256 from a connection that it trusts
// recognizes the process by it.
#pragma once

#include <openssl/types.h>

#include <string>

namespace telegrad {

class OwnCertificate {
 public:
  // Null where OpenSSL gives none. Thread-safe; lives until the end of the process.
  static const OwnCertificate* OfProcess();

  X509* certificate() const { return certificate_; }
  EVP_PKEY* key() const { return key_; }
  const std::string& sha256() const { return sha256_; }  // of the DER form, 32 bytes

 private:
  OwnCertificate() = default;
  bool Make();

  X509* certificate_ = nullptr;
  EVP_PKEY* key_ = nullptr;
  std::string sha256_;
};

}  // namespace telegrad
