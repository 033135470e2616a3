// From what the transport knows of a caller to who it is.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/identity/principal.h"

namespace telegrad {

// The tenant of every caller of a daemon without credentials.
inline constexpr std::string_view kLocalTenant = "local";

// What a call came with.
struct Credentials {
  std::string peer;  // for the log
};

// Thread-safe.
class Authenticator {
 public:
  // UNAUTHENTICATED says for the log what was wrong; the caller is not told.
  absl::StatusOr<Principal> Authenticate(const Credentials& credentials);
};

}  // namespace telegrad
