// Bearer tokens: JSON Web Tokens (RFC 7519) in compact form, signed (RFC 7515) by a key that this
// server knows. The header's "kid" names the key; it may be left out while there is only one.
// Claims:
//
//   exp, sub, tenant   required: end of validity, who, and for which tenant
//   admin              true: may administer
//   aud                must be, or hold, the server's audience
//   iss                must be the server's issuer, if it is told one
//   nbf, iat           not in the future
//
// Times may be off by kLeeway. A header with "crit" is refused; nothing in a header says where to
// find a key.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/identity/key_folder.h"
#include "server/identity/principal.h"

namespace telegrad {

inline constexpr size_t kMaxTokenBytes = 6144;
inline constexpr absl::Duration kLeeway = absl::Seconds(30);

struct TokenRules {
  std::string issuer;  // empty: any whose signature holds
  std::string audience;
};

// UNAUTHENTICATED says what is wrong, without quoting the token. `signed_by`, unless null, receives
// the name of the key.
absl::StatusOr<Principal> VerifyToken(std::string_view token, const KeySet& keys,
                                      const TokenRules& rules, absl::Time now,
                                      std::string* signed_by = nullptr);

// Tokens signed with a secret of this process, for callers that were authenticated in another way.
class LocalTokens {
 public:
  static constexpr absl::Duration kLifetime = absl::Minutes(15);

  explicit LocalTokens(std::string audience);  // with a new secret
  std::string Issue(const Principal& principal, absl::Time now) const;
  // Whether VerifyToken with keys() is the way to check this token.
  static bool IsOurs(std::string_view token);
  const KeySet& keys() const { return keys_; }

 private:
  const std::string audience_;
  std::string secret_;
  KeySet keys_;
};

}  // namespace telegrad
