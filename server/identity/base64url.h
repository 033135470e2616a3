// base64url without padding (RFC 4648 section 5, as RFC 7515 uses it).
#pragma once

#include <string>
#include <string_view>

namespace telegrad {

std::string Base64UrlEncode(std::string_view bytes);
// Strict: each byte string has one text. No padding, no white space, no bits left over.
bool Base64UrlDecode(std::string_view text, std::string* bytes);

}  // namespace telegrad
