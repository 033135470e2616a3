// Compression of the chunks of a transfer. A message states the uncompressed length of its chunk;
// decompression refuses data that states or has another length.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/wire/envelope.h"
#include "telegrad/v1/session.pb.h"

namespace telegrad {

// A row for each compression except "none".
struct CompressionMethod {
  v1::Compression number;
  std::string_view name;
  size_t (*bound)(size_t bytes);
  // The compressed length, or 0.
  size_t (*compress)(std::span<const std::byte> in, std::span<std::byte> out);
  // Whether `in` decompresses to exactly `out.size()` bytes; never writes more.
  bool (*decompress)(std::span<const std::byte> in, std::span<std::byte> out);
};
std::span<const CompressionMethod> CompressionMethods();
const CompressionMethod* FindCompression(v1::Compression number);  // null: not known here

// False where compression saves less than a sixteenth; `out` is then unspecified.
bool Compress(const CompressionMethod& method, std::span<const std::byte> in, std::string* out);

// INVALID_ARGUMENT unless `in` is one block or frame of exactly `out.size()` bytes.
absl::Status Decompress(const CompressionMethod& method, std::span<const ByteSpan> in,
                        std::span<std::byte> out);

}  // namespace telegrad
