// The authorization header is checked first, then the certificate. A grant keeps what was
// checked, so that a call that is under way can be checked again.
#include "server/identity/authenticator.h"

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<Authenticator>> Authenticator::Create(
    const AuthenticatorOptions& options) {
  std::unique_ptr<Authenticator> authenticator(new Authenticator);
  authenticator->rules_ = options.rules;
  if (!options.jwt_keys.empty()) {
    TG_ASSIGN_OR_RETURN(authenticator->keys_, KeyFolder::Open(options.jwt_keys));
  }
  if (options.certificates) {
    TG_ASSIGN_OR_RETURN(authenticator->certificates_,
                        CertificateTenants::Open(options.tls_tenants));
  }
  if (!options.tls_crl.empty()) {
    TG_ASSIGN_OR_RETURN(authenticator->revoked_,
                        RevocationList::Open(options.tls_crl, options.tls_client_ca));
  }
  if (options.local_tokens) {
    authenticator->local_ = std::make_unique<LocalTokens>(options.rules.audience);
  }
  return authenticator;
}

absl::StatusOr<Principal> Authenticator::Authenticate(const Credentials& credentials,
                                                      Grant* grant) {
  if (open()) return Principal{credentials.peer, std::string(kLocalTenant), /*admin=*/true};
  if (credentials.authorizations.size() > 1) {
    return absl::UnauthenticatedError("more than one authorization header");
  }
  if (!credentials.authorizations.empty()) return FromToken(credentials.authorizations[0], grant);
  if (certificates_ != nullptr && credentials.certified) return FromCertificate(credentials, grant);
  return absl::UnauthenticatedError("no credentials");
}

absl::StatusOr<Principal> Authenticator::FromCertificate(const Credentials& credentials,
                                                         Grant* grant) {
  std::string id;
  if (revoked_ != nullptr) {
    TG_ASSIGN_OR_RETURN(id, revoked_->Check(credentials.certificate));
  }
  TG_ASSIGN_OR_RETURN(Principal principal, certificates_->Find(credentials.names));
  if (grant != nullptr) {
    *grant = {.certified = true, .names = credentials.names, .certificate = std::move(id)};
  }
  return principal;
}

absl::StatusOr<Principal> Authenticator::FromToken(std::string_view authorization, Grant* grant) {
  constexpr std::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(ToAbsl(authorization), ToAbsl(kScheme))) {
    return absl::UnauthenticatedError("the authorization header is not \"Bearer TOKEN\"");
  }
  const std::string_view token = authorization.substr(kScheme.size());
  if (local_ != nullptr && LocalTokens::IsOurs(token)) {
    return VerifyToken(token, local_->keys(), {.issuer = {}, .audience = rules_.audience},
                       absl::Now());
  }
  if (keys_ == nullptr) return absl::UnauthenticatedError("this server accepts no tokens");
  const std::shared_ptr<const KeySet> keys = keys_->Keys();
  std::string key;
  TG_ASSIGN_OR_RETURN(Principal principal, VerifyToken(token, *keys, rules_, absl::Now(), &key));
  if (grant != nullptr) *grant = {.key = key, .key_print = keys->at(key).fingerprint()};
  return principal;
}

absl::Status Authenticator::CheckGrant(const Grant& grant, const Principal& principal) {
  if (!grant.key.empty()) {
    const std::shared_ptr<const KeySet> keys = keys_->Keys();
    const auto key = keys->find(grant.key);
    if (key == keys->end() || key->second.fingerprint() != grant.key_print) {
      return absl::UnauthenticatedError(StrCat("the key ", grant.key, " was withdrawn"));
    }
  }
  if (!grant.certified) return absl::OkStatus();
  if (revoked_ != nullptr) TG_RETURN_IF_ERROR(revoked_->CheckId(grant.certificate));
  TG_ASSIGN_OR_RETURN(const Principal now, certificates_->Find(grant.names));
  if (now == principal) return absl::OkStatus();
  return absl::UnauthenticatedError("the names of the certificate now belong to another tenant");
}

void Authenticator::Refresh() {
  if (keys_ != nullptr) keys_->Refresh();
  if (certificates_ != nullptr) certificates_->Refresh();
  if (revoked_ != nullptr) revoked_->Refresh();
}

}  // namespace telegrad
