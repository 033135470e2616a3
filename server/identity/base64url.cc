// Encodes and decodes by the alphabet of RFC 4648; a length or last bits that no encoder writes
// are refused.
#include "server/identity/base64url.h"

#include <cstdint>

namespace telegrad {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

}  // namespace

std::string Base64UrlEncode(std::string_view bytes) {
  std::string text;
  uint32_t bits = 0;
  int held = 0;
  for (const unsigned char byte : bytes) {
    bits = bits << 8 | byte;
    for (held += 8; held >= 6; held -= 6) text += kAlphabet[bits >> (held - 6) & 63];
  }
  if (held > 0) text += kAlphabet[bits << (6 - held) & 63];
  return text;
}

bool Base64UrlDecode(std::string_view text, std::string* bytes) {
  bytes->clear();
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    *bytes += static_cast<char>(bits >> held & 255);
  }
  return held < 6 && (bits & ((1u << held) - 1)) == 0;
}

}  // namespace telegrad
