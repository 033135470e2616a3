// Checksums of the chunks of transfers: CRC-32C, for clients without it the CRC-32 of zlib, and
// none where the transport keeps bytes as they are (0).
#pragma once

#include <cstddef>
#include <cstdint>

namespace telegrad {

enum class Checksum { kCrc32c, kCrc32, kNone };

// That of the bytes whose checksum is `before`, 0 for none, followed by these.
uint32_t ChecksumOf(Checksum kind, const void* data, size_t size, uint32_t before = 0);
// The same, and copies the bytes to `to`.
uint32_t CopyWithChecksum(Checksum kind, void* to, const void* from, size_t size,
                          uint32_t before = 0);

}  // namespace telegrad
