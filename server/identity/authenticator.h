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
#include "server/identity/token.h"

namespace telegrad {

// What a call came with.
struct Credentials {
  std::string peer;                         // for the log
  std::vector<std::string> authorizations;  // values of the header
  bool certified = false;                   // by a client certificate that the transport verified
  std::vector<CertificateName> names;       // its subject alternative names
};

struct AuthenticatorOptions {
  std::string jwt_keys;  // a folder; empty: no tokens but our own
  TokenRules rules;
  bool certificates = false;  // stand for callers
  std::string tls_tenants;    // a file; may be empty
  bool local_tokens = false;  // are issued to callers on the local socket
};

// Thread-safe.
class Authenticator {
 public:
  static absl::StatusOr<std::unique_ptr<Authenticator>> Create(const AuthenticatorOptions& options);

  // UNAUTHENTICATED says for the log what was wrong; the caller is not told.
  absl::StatusOr<Principal> Authenticate(const Credentials& credentials);

  // True if nobody is asked for credentials.
  bool open() const { return keys_ == nullptr && certificates_ == nullptr && local_ == nullptr; }
  const LocalTokens* local_tokens() const { return local_.get(); }  // null unless they are issued

 private:
  Authenticator() = default;
  absl::StatusOr<Principal> FromToken(std::string_view authorization);

  TokenRules rules_;
  std::unique_ptr<KeyFolder> keys_;
  std::unique_ptr<CertificateTenants> certificates_;
  std::unique_ptr<LocalTokens> local_;
};

}  // namespace telegrad
