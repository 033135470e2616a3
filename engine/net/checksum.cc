#include "engine/net/checksum.h"

#include <zlib.h>

#include <cstring>

#include "engine/base/crc32c.h"

namespace telegrad {

uint32_t ChecksumOf(Checksum kind, const void* data, size_t size, uint32_t before) {
  if (kind == Checksum::kNone) return 0;
  if (kind == Checksum::kCrc32c) return Crc32c(data, size, before);
  return static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(data), size));
}

uint32_t CopyWithChecksum(Checksum kind, void* to, const void* from, size_t size, uint32_t before) {
  if (kind == Checksum::kCrc32c) return CopyCrc32c(to, from, size, before);
  std::memcpy(to, from, size);
  return ChecksumOf(kind, from, size, before);
}

}  // namespace telegrad
