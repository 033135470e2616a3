// The identity of a caller, taken from the transport or a signed token, never from a request.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace telegrad {

struct Principal {
  std::string subject;  // for the log
  std::string
      tenant;  // the tenant that is charged, and whose graphs and sessions the caller can use
  bool admin = false;  // may call the methods that are for administrators

  friend bool operator==(const Principal&, const Principal&) = default;
};

// The tenant of every caller of a daemon without credentials.
inline constexpr std::string_view kLocalTenant = "local";

// 1 to kMaxTenantNameBytes letters, digits, '.', '_' and '-', the first one a letter or digit: what
// fits into a file, a log line and a metric's label as it is.
inline constexpr size_t kMaxTenantNameBytes = 64;
bool IsTenantName(std::string_view name);

}  // namespace telegrad
