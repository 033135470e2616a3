// Compression of the chunks of a transfer. How long a chunk was before is said beside it, and
// nothing is decompressed that says otherwise of itself or would become longer.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/wire/envelope.h"
#include "telegrad/v1/session.pb.h"

namespace telegrad {

// Of those with an algorithm behind it.
struct CompressionMethod {
  v1::Compression number;
  std::string_view name;
  size_t (*bound)(size_t bytes);
  // The compressed length, or 0.
  size_t (*compress)(std::span<const std::byte> in, std::span<std::byte> out);
  // Whether `in` becomes exactly `out.size()` bytes; writes no more than these in any case.
  bool (*decompress)(std::span<const std::byte> in, std::span<std::byte> out);
};
std::span<const CompressionMethod> CompressionMethods();
const CompressionMethod* FindCompression(v1::Compression number);  // null: not known here

// False where it does not save at least a sixteenth; `out` is then of no use.
bool Compress(const CompressionMethod& method, std::span<const std::byte> in, std::string* out);

// INVALID_ARGUMENT unless `in` is one block or frame of exactly `out.size()` bytes.
absl::Status Decompress(const CompressionMethod& method, std::span<const Piece> in,
                        std::span<std::byte> out);

}  // namespace telegrad
