// Hashes. Digest is the content hash (SHA-256, FIPS 180-4): the same in every process and on every
// machine, and safe against a client who looks for collisions. Mix64 is for in-memory tables only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/hash/hash.h"

namespace telegrad {

struct Digest {
  std::array<uint8_t, 32> bytes{};

  std::string Hex() const;
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // False unless `raw` is exactly 32 bytes.
  static bool FromBytes(std::string_view raw, Digest* out);

  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Digest& d) {
    return H::combine(std::move(h), d.bytes);
  }
};

Digest Sha256(std::string_view data);

inline uint64_t Mix64(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 12) + (h >> 4);
  h *= 0xff51afd7ed558ccdull;
  return h ^ (h >> 32);
}

}  // namespace telegrad
