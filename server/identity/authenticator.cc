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
  if (options.local_tokens) {
    authenticator->local_ = std::make_unique<LocalTokens>(options.rules.audience);
  }
  return authenticator;
}

absl::StatusOr<Principal> Authenticator::Authenticate(const Credentials& credentials) {
  if (open()) return Principal{credentials.peer, std::string(kLocalTenant), /*admin=*/true};
  if (credentials.authorizations.size() > 1) {
    return absl::UnauthenticatedError("more than one authorization header");
  }
  if (!credentials.authorizations.empty()) return FromToken(credentials.authorizations[0]);
  if (certificates_ != nullptr && credentials.certified) {
    return certificates_->Find(credentials.names);
  }
  return absl::UnauthenticatedError("no credentials");
}

absl::StatusOr<Principal> Authenticator::FromToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(ToAbsl(authorization), ToAbsl(kScheme))) {
    return absl::UnauthenticatedError("the authorization header is not \"Bearer TOKEN\"");
  }
  const std::string_view token = authorization.substr(kScheme.size());
  if (local_ != nullptr && LocalTokens::IsOurs(token)) {
    return VerifyToken(token, local_->keys(), {.issuer = {}, .audience = rules_.audience},
                       absl::Now());
  }
  if (keys_ == nullptr) return absl::UnauthenticatedError("no tokens are taken here");
  return VerifyToken(token, *keys_->Keys(), rules_, absl::Now());
}

}  // namespace telegrad
