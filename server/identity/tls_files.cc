// Reads certificate, key and authorities with OpenSSL and checks that the key belongs to the
// certificate.
#include "server/identity/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "engine/base/status.h"
#include "server/identity/reloaded.h"

namespace telegrad {
namespace {

// What `read` finds in the file, or an error that says what was expected.
template <typename T, typename Read, typename Free>
absl::StatusOr<std::shared_ptr<T>> FromFile(const std::string& path, Read read, Free free,
                                            std::string_view expected) {
  const absl::StatusOr<std::string> content = ReadSmallFile(path);
  if (!content.ok()) return InvalidArgument(path, ": ", content.status().message());
  BIO* const bio = BIO_new_mem_buf(content->data(), static_cast<int>(content->size()));
  // A daemon cannot prompt for a passphrase.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  T* const found = read(bio, nullptr, no_passphrase, nullptr);
  BIO_free(bio);
  ERR_clear_error();
  if (found == nullptr)
    return InvalidArgument(path, ": expected ", expected, " in PEM, not encrypted");
  return std::shared_ptr<T>(found, free);
}

absl::StatusOr<std::shared_ptr<X509>> CertificateFrom(const std::string& path) {
  TG_ASSIGN_OR_RETURN(auto certificate,
                      FromFile<X509>(path, &PEM_read_bio_X509, &X509_free, "a certificate"));
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return InvalidArgument(path, ": the certificate has expired");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0) {
    return InvalidArgument(path, ": the certificate is not valid yet");
  }
  return certificate;
}

// A file that is being written may end within the second certificate or a later one.
absl::Status CheckAllCertificates(const std::string& path) {
  TG_ASSIGN_OR_RETURN(const std::string content, ReadSmallFile(path));
  BIO* const bio = BIO_new_mem_buf(content.data(), static_cast<int>(content.size()));
  int found = 0;
  ERR_clear_error();
  while (X509* const next = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr)) {
    X509_free(next);
    ++found;
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  BIO_free(bio);
  ERR_clear_error();
  if (at_end) return absl::OkStatus();
  return InvalidArgument(path, ": the certificate after the first ", found,
                         " is damaged or not complete");
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  TG_ASSIGN_OR_RETURN(const auto certificate, CertificateFrom(files.certificate));
  TG_RETURN_IF_ERROR(CheckAllCertificates(files.certificate));
  TG_ASSIGN_OR_RETURN(const auto key, FromFile<EVP_PKEY>(files.key, &PEM_read_bio_PrivateKey,
                                                         &EVP_PKEY_free, "a private key"));
  const bool fits = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!fits) {
    return InvalidArgument(files.key, ": not the key of the certificate in ", files.certificate);
  }
  if (files.client_ca.empty()) return absl::OkStatus();
  TG_RETURN_IF_ERROR(CertificateFrom(files.client_ca).status());
  return CheckAllCertificates(files.client_ca);
}

}  // namespace telegrad
