// Who a caller is, as the transport or a signed token says; never what a request says.
#pragma once

#include <string>
#include <string_view>

namespace telegrad {

struct Principal {
  std::string subject;  // for the log
  std::string tenant;   // who pays, and whose graphs and sessions the caller sees
  bool admin = false;   // may call the methods that are for administrators

  friend bool operator==(const Principal&, const Principal&) = default;
};

// The tenant of every caller of a daemon without credentials.
inline constexpr std::string_view kLocalTenant = "local";

// 1 to 64 letters, digits, '.', '_' and '-', the first one a letter or digit.
bool IsTenantName(std::string_view name);

}  // namespace telegrad
