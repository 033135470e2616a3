// CRC-32C (Castagnoli), the checksum of RFC 3720, appendix B.4: polynomial 0x1EDC6F41, bits
// reflected, inverted before and after. Uses the processor's instructions where it has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace telegrad {

// The checksum of `size` bytes; with `crc`, that of the bytes whose checksum is `crc`, followed by
// these.
uint32_t Crc32c(const void* data, size_t size, uint32_t crc = 0);

// The same, and copies them to `to` on the way, which is cheaper than one after the other. A large
// copy bypasses the caches, so this is for bytes that are not used at once.
uint32_t CopyCrc32c(void* to, const void* from, size_t size, uint32_t crc = 0);

// The ways to compute it, for tests: each gives the same.
struct Crc32cWay {
  const char* name;
  uint32_t (*extend)(uint32_t crc, const void* data, size_t size);
  uint32_t (*copy)(uint32_t crc, void* to, const void* from, size_t size);
};
// The first one is what the functions above use. Ends with a row without a name.
const Crc32cWay* Crc32cWays();

}  // namespace telegrad
