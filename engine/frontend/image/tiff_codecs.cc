// PackBits (TIFF 6.0, section 9), LZW (section 13) and deflate (Adobe's technical note of 2002).
#include "engine/frontend/image/tiff_codecs.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/frontend/image/raster.h"

namespace telegrad {
namespace {

enum TiffCompression : int64_t {
  kPlain = 1,
  kLzw = 5,
  kAdobeDeflate = 8,
  kPackBits = 32773,
  kDeflate = 32946,
};

absl::Status TooShort() { return DamagedImage("its compressed data ends too early"); }

// A byte n tells: n + 1 bytes follow as they are, or the next byte 1 - n times (n < 0), or nothing.
absl::Status UnpackBits(std::string_view packed, std::string* out) {
  size_t at = 0, from = 0;
  while (at < out->size()) {
    if (from >= packed.size()) return TooShort();
    const int n = static_cast<signed char>(packed[from++]);
    if (n == -128) continue;
    const size_t given = n >= 0 ? static_cast<size_t>(n) + 1 : 1;
    if (packed.size() - from < given) return TooShort();
    const size_t count = std::min(n >= 0 ? given : static_cast<size_t>(1 - n), out->size() - at);
    if (n >= 0) {
      std::memcpy(out->data() + at, packed.data() + from, count);
    } else {
      std::memset(out->data() + at, packed[from], count);
    }
    at += count;
    from += given;
  }
  return absl::OkStatus();
}

// Codes of 9 to 12 bits, the highest bit first. A code beyond 257 is the text of an earlier code
// with one more byte; texts are kept as chains of last bytes.
absl::Status UnpackLzw(std::string_view packed, std::string* out) {
  constexpr int kClear = 256, kEnd = 257, kFirst = 258, kCodes = 4096;
  struct Text {
    uint16_t before = 0, length = 1;
    char last = 0;
  };
  std::array<Text, kCodes> texts;
  for (int i = 0; i < 256; ++i) texts[i].last = static_cast<char>(i);
  int next = kFirst, width = 9, previous = -1;
  uint32_t word = 0;
  int bits = 0;
  size_t at = 0, from = 0;
  while (at < out->size()) {
    while (bits < width) {
      if (from >= packed.size()) return TooShort();
      word = word << 8 | static_cast<uint8_t>(packed[from++]);
      bits += 8;
    }
    const int code = static_cast<int>(word >> (bits - width) & ((1U << width) - 1));
    bits -= width;
    if (code == kEnd) return TooShort();
    if (code == kClear) {
      next = kFirst, width = 9, previous = -1;
      continue;
    }
    if (code > next || (code == next && previous < 0) || (code >= 256 && code < kFirst)) {
      return DamagedImage("an LZW code that is not defined");
    }
    // The text of a code that is only about to be defined is the previous one and its first byte.
    const int known = code == next ? previous : code;
    const size_t length = texts[known].length;
    char first = 0;
    for (int c = known;; c = texts[c].before) {
      const size_t place = at + texts[c].length - 1U;
      if (place < out->size()) (*out)[place] = texts[c].last;
      first = texts[c].last;
      if (texts[c].length == 1) break;
    }
    at += length;
    if (code == next) {
      if (at < out->size()) (*out)[at] = first;
      ++at;
    }
    if (previous >= 0 && next < kCodes) {
      texts[next] = {.before = static_cast<uint16_t>(previous),
                     .length = static_cast<uint16_t>(texts[previous].length + 1),
                     .last = first};
      ++next;
    }
    previous = code;
    // One code earlier than needed.
    if (next + 1 >= 1 << width && width < 12) ++width;
  }
  return absl::OkStatus();
}

absl::Status Inflate(std::string_view packed, std::string* out) {
  z_stream stream = {};
  if (inflateInit(&stream) != Z_OK) return ResourceExhausted("no memory to inflate with");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out->data());
  stream.avail_out = static_cast<uInt>(out->size());
  const int result = inflate(&stream, Z_FINISH);
  const bool whole = stream.avail_out == 0;
  inflateEnd(&stream);
  if (whole) return absl::OkStatus();
  return result == Z_DATA_ERROR ? DamagedImage("its deflated data") : TooShort();
}

}  // namespace

absl::Status UnpackTiff(int64_t compression, std::string_view packed, std::string* out) {
  switch (compression) {
    case kPlain:
      if (packed.size() < out->size()) return DamagedImage("it ends in its pixels");
      std::memcpy(out->data(), packed.data(), out->size());
      return absl::OkStatus();
    case kLzw:
      return UnpackLzw(packed, out);
    case kAdobeDeflate:
    case kDeflate:
      return Inflate(packed, out);
    case kPackBits:
      return UnpackBits(packed, out);
    default:
      return Unimplemented("compression ", compression);
  }
}

}  // namespace telegrad
