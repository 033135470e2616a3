// TLS of the HTTP server: its certificate, and the authorities of client certificates. Files
// that change are read again for connections that are opened later; invalid files are logged,
// and the last valid ones stay in force.
#pragma once

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/identity/certificate_tenants.h"
#include "server/identity/reloaded.h"
#include "server/identity/tls_files.h"

namespace telegrad {

// A caller's certificate, which one of the authorities has signed.
struct HttpCertificate {
  std::vector<CertificateName> names;
  std::string pem;
};

// Thread-safe.
class HttpTls {
 public:
  // The errors of CheckTlsFiles.
  static absl::StatusOr<std::unique_ptr<HttpTls>> Open(const TlsFiles& files);

  struct Texts {
    std::string certificate, key, client_ca;  // in PEM
  };
  std::shared_ptr<const Texts> Get() { return texts_.Get(); }
  void Refresh() { texts_.Refresh(); }
  bool asks_for_certificates() const { return asks_; }

  // The server's chain and key for a handshake, which GnuTLS is to free. False where there is no
  // memory.
  bool Show(gnutls_pcert_st** certificates, unsigned* count, gnutls_privkey_t* key);
  // Of the caller at the other end; one without names where none was shown. UNAUTHENTICATED for one
  // that no authority of now has signed for a client, or that is not valid now.
  absl::StatusOr<HttpCertificate> CallerOf(gnutls_session_t session);

 private:
  HttpTls(const TlsFiles& files, Texts first, std::string stamp);

  const bool asks_;
  Reloaded<Texts> texts_;
};

}  // namespace telegrad
