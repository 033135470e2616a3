// Bit fields of words, numbered as in the manuals, and the text of errors about them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace telegrad::fakes {

inline uint32_t Bits(uint32_t word, int high, int low) {
  return (word >> low) & (high - low == 31 ? ~0u : (1u << (high - low + 1)) - 1);
}

inline uint64_t Pair(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

inline std::string Wrong(const char* what, uint64_t found) {
  return absl::StrFormat("%s: %#x", what, found);
}

}  // namespace telegrad::fakes
