#include "engine/net/own_certificate.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

namespace telegrad {
namespace {

constexpr long kVersion3 = 2;  // RFC 5280, section 4.1.2.1
constexpr long kBeginsSeconds = -24 * 3600L, kEndsSeconds = 20 * 366 * 24 * 3600L;  // from now

}  // namespace

const OwnCertificate* OwnCertificate::OfProcess() {
  static const OwnCertificate* const own = []() -> const OwnCertificate* {
    auto* made = new OwnCertificate();
    const bool done = made->Make();
    ERR_clear_error();
    if (done) return made;
    X509_free(made->certificate_);
    EVP_PKEY_free(made->key_);
    delete made;
    return nullptr;
  }();
  return own;
}

bool OwnCertificate::Make() {
  key_ = EVP_EC_gen("P-256");
  certificate_ = X509_new();
  if (key_ == nullptr || certificate_ == nullptr) return false;
  uint64_t serial = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) != 1) return false;
  X509_NAME* const name = X509_get_subject_name(certificate_);
  const auto* common_name = reinterpret_cast<const unsigned char*>("telegradd");
  if (X509_set_version(certificate_, kVersion3) != 1 ||
      ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate_), serial >> 1) != 1 ||
      X509_gmtime_adj(X509_getm_notBefore(certificate_), kBeginsSeconds) == nullptr ||
      X509_gmtime_adj(X509_getm_notAfter(certificate_), kEndsSeconds) == nullptr ||
      X509_set_pubkey(certificate_, key_) != 1 ||
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, common_name, -1, -1, 0) != 1 ||
      X509_set_issuer_name(certificate_, name) != 1 ||
      X509_sign(certificate_, key_, EVP_sha256()) == 0) {
    return false;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (X509_digest(certificate_, EVP_sha256(), digest, &size) != 1) return false;
  sha256_.assign(reinterpret_cast<const char*>(digest), size);
  return true;
}

}  // namespace telegrad
