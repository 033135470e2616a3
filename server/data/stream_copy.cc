// The C library's memcpy does this, too, but only from a size on that depends on its share of the
// last cache (several MiB to some hundred), while transfers copy pieces of a few MiB at a time.
#include "server/data/stream_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace telegrad {

#if defined(__SSE2__)
void StreamCopy(void* to, const void* from, size_t bytes) {
  if (bytes < kStreamedBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  constexpr size_t kLine = 64;  // a line of the caches, which such stores fill at once
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
  std::memcpy(out, in, head);
  out += head;
  in += head;
  bytes -= head;
  for (; bytes >= kLine; bytes -= kLine, out += kLine, in += kLine) {
    const auto* const read = reinterpret_cast<const __m128i*>(in);
    auto* const write = reinterpret_cast<__m128i*>(out);
    const __m128i a = _mm_loadu_si128(read), b = _mm_loadu_si128(read + 1);
    const __m128i c = _mm_loadu_si128(read + 2), d = _mm_loadu_si128(read + 3);
    _mm_stream_si128(write, a);
    _mm_stream_si128(write + 1, b);
    _mm_stream_si128(write + 2, c);
    _mm_stream_si128(write + 3, d);
  }
  std::memcpy(out, in, bytes);
  _mm_sfence();  // such stores are not ordered otherwise
}
#else
void StreamCopy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
#endif

}  // namespace telegrad
