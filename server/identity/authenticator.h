// From what the transport knows of a caller to who it is. With any kind of credentials configured,
// whoever has none of them is refused; without, all callers are the local tenant, and the daemon
// sees to it that they are of this machine.
//
// A call with an authorization header is judged by that alone: a bad token is never made good by a
// certificate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/identity/certificate_tenants.h"
#include "server/identity/key_folder.h"
#include "server/identity/principal.h"
#include "server/identity/revocation_list.h"
#include "server/identity/token.h"

namespace telegrad {

// What a call came with.
struct Credentials {
  std::string peer;                         // for the log
  std::vector<std::string> authorizations;  // values of the header
  bool certified = false;                   // by a client certificate that the transport verified
  std::vector<CertificateName> names;       // its subject alternative names
  std::string certificate;                  // itself, in PEM
};

// What a caller was known by, so that one can find out later whether it was withdrawn.
struct Grant {
  std::string key = {};    // the name of the key that has signed the token; empty: no such token
  size_t key_print = 0;    // and its fingerprint
  bool certified = false;  // by a certificate,
  std::vector<CertificateName> names = {};
  std::string certificate = {};  // and which it is, see RevocationList
};

struct AuthenticatorOptions {
  std::string jwt_keys;  // a folder; empty: no tokens but our own
  TokenRules rules;
  bool certificates = false;  // stand for callers
  std::string tls_tenants;    // a file; may be empty
  std::string tls_crl;        // likewise, and the file of the authorities that sign it
  std::string tls_client_ca;
  bool local_tokens = false;  // are issued to callers on the local socket
};

// Thread-safe.
class Authenticator {
 public:
  static absl::StatusOr<std::unique_ptr<Authenticator>> Create(const AuthenticatorOptions& options);

  // UNAUTHENTICATED says for the log what was wrong; the caller is not told. `grant`, if any, is
  // told what decided.
  absl::StatusOr<Principal> Authenticate(const Credentials& credentials, Grant* grant = nullptr);
  // UNAUTHENTICATED once what made `principal` known was withdrawn: the key is gone or another one,
  // the certificate revoked, its names given to others. That a token has expired withdraws nothing.
  absl::Status CheckGrant(const Grant& grant, const Principal& principal);

  // Looks at all files now, whether or not it is time. What is wrong is logged and changes nothing
  // but what it concerns.
  void Refresh();
  // Times that a file could not be read, though it is not known to be gone.
  int64_t read_errors() const { return keys_ == nullptr ? 0 : keys_->read_errors(); }

  // True if nobody is asked for credentials.
  bool open() const { return keys_ == nullptr && certificates_ == nullptr && local_ == nullptr; }
  const LocalTokens* local_tokens() const { return local_.get(); }  // null unless they are issued

 private:
  Authenticator() = default;
  absl::StatusOr<Principal> FromToken(std::string_view authorization, Grant* grant);
  absl::StatusOr<Principal> FromCertificate(const Credentials& credentials, Grant* grant);

  TokenRules rules_;
  std::unique_ptr<KeyFolder> keys_;
  std::unique_ptr<CertificateTenants> certificates_;
  std::unique_ptr<RevocationList> revoked_;
  std::unique_ptr<LocalTokens> local_;
};

}  // namespace telegrad
