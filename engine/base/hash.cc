#include "engine/base/hash.h"

#include <openssl/sha.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "engine/base/strings.h"

namespace telegrad {

std::string Digest::Hex() const { return absl::BytesToHexString(ToAbsl(view())); }

bool Digest::FromBytes(std::string_view raw, Digest* out) {
  if (raw.size() != out->bytes.size()) return false;
  std::memcpy(out->bytes.data(), raw.data(), raw.size());
  return true;
}

Digest Sha256(std::string_view data) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest.bytes.data());
  return digest;
}

}  // namespace telegrad
