#include "engine/wire/compression.h"

#include <lz4.h>
#include <zstd.h>

#include <vector>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// One that is cheap enough to be worth it on a fast network.
constexpr int kZstdLevel = 1;

const char* Chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const char*>(bytes.data());
}
char* Chars(std::span<std::byte> bytes) { return reinterpret_cast<char*>(bytes.data()); }

size_t BoundLz4(size_t bytes) {
  return static_cast<size_t>(LZ4_compressBound(static_cast<int>(bytes)));
}
size_t CompressLz4(std::span<const std::byte> in, std::span<std::byte> out) {
  const int n = LZ4_compress_default(Chars(in), Chars(out), static_cast<int>(in.size()),
                                     static_cast<int>(out.size()));
  return n > 0 ? static_cast<size_t>(n) : 0;
}
bool DecompressLz4(std::span<const std::byte> in, std::span<std::byte> out) {
  const int n = LZ4_decompress_safe(Chars(in), Chars(out), static_cast<int>(in.size()),
                                    static_cast<int>(out.size()));
  return n >= 0 && static_cast<size_t>(n) == out.size();
}

size_t CompressZstd(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t n = ZSTD_compress(out.data(), out.size(), in.data(), in.size(), kZstdLevel);
  return ZSTD_isError(n) ? 0 : n;
}
// The frame says its own length, and it is the only one.
bool DecompressZstd(std::span<const std::byte> in, std::span<std::byte> out) {
  if (ZSTD_getFrameContentSize(in.data(), in.size()) != out.size()) return false;
  if (ZSTD_findFrameCompressedSize(in.data(), in.size()) != in.size()) return false;
  return ZSTD_decompress(out.data(), out.size(), in.data(), in.size()) == out.size();
}

constexpr CompressionMethod kMethods[] = {
    {v1::COMPRESSION_LZ4, "LZ4", BoundLz4, CompressLz4, DecompressLz4},
    {v1::COMPRESSION_ZSTD, "Zstandard", ZSTD_compressBound, CompressZstd, DecompressZstd},
};

constexpr size_t kMostBytes = LZ4_MAX_INPUT_SIZE;  // lengths are ints in LZ4

}  // namespace

std::span<const CompressionMethod> CompressionMethods() { return kMethods; }

const CompressionMethod* FindCompression(v1::Compression number) {
  for (const CompressionMethod& method : kMethods) {
    if (method.number == number) return &method;
  }
  return nullptr;
}

bool Compress(const CompressionMethod& method, std::span<const std::byte> in, std::string* out) {
  if (in.empty() || in.size() > kMostBytes) return false;
  out->resize(method.bound(in.size()));
  const size_t n = method.compress(in, std::as_writable_bytes(std::span(*out)));
  out->resize(n);
  return n > 0 && n <= in.size() - in.size() / 16;
}

absl::Status Decompress(const CompressionMethod& method, std::span<const ByteSpan> in,
                        std::span<std::byte> out) {
  uint64_t size = 0;
  for (const ByteSpan& piece : in) size += piece.size();
  if (size > out.size() || out.size() > kMostBytes) {
    return InvalidArgument(size, " bytes of ", method.name, " for a chunk of ", out.size(),
                           "; compressed, a chunk is shorter");
  }
  std::vector<std::byte> joined;
  std::span<const std::byte> whole;
  if (in.size() == 1) {
    whole = std::as_bytes(in[0]);
  } else {
    joined.reserve(size);
    for (const ByteSpan& piece : in) {
      const auto bytes = std::as_bytes(piece);
      joined.insert(joined.end(), bytes.begin(), bytes.end());
    }
    whole = joined;
  }
  if (!method.decompress(whole, out)) {
    return InvalidArgument("the data of a chunk is not ", method.name, " of ", out.size(),
                           " bytes");
  }
  return absl::OkStatus();
}

}  // namespace telegrad
