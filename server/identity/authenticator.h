// Derives a caller's identity from what the transport provides. When any kind of credentials is
// configured, callers without valid ones are refused; otherwise all callers are the local tenant,
// and the daemon listens on addresses of this machine only.
//
// If a call has an authorization header, the header alone decides: a certificate does not make up
// for a bad token.
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

// The credentials of a call.
struct Credentials {
  std::string peer;                         // for the log
  std::vector<std::string> authorizations;  // values of the header
  bool certified = false;                   // by a client certificate that the transport verified
  std::vector<CertificateName> names;       // its subject alternative names
  std::string certificate;                  // itself, in PEM
};

// The credential by which a caller was authenticated, so that its withdrawal can be detected later.
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

  // The message of UNAUTHENTICATED is for the log; the caller does not get it. `grant`, unless
  // null, receives the credential that decided.
  absl::StatusOr<Principal> Authenticate(const Credentials& credentials, Grant* grant = nullptr);
  // UNAUTHENTICATED once the credential of `principal` was withdrawn: its key removed or replaced,
  // the certificate revoked, its names assigned to another tenant. The expiry of a token withdraws
  // nothing.
  absl::Status CheckGrant(const Grant& grant, const Principal& principal);

  // Reads all files again now. A file with an error is logged; the last valid content of that file
  // stays in force.
  void Refresh();
  // Number of times that a file could not be read although it may still exist.
  int64_t read_errors() const { return keys_ == nullptr ? 0 : keys_->read_errors(); }

  // True if no credentials are required.
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
