// The characters and the length that a tenant's name may have.
#include "server/identity/principal.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace telegrad {

bool IsTenantName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTenantNameBytes && absl::ascii_isalnum(name[0]) &&
         std::ranges::all_of(name, [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

}  // namespace telegrad
