// A message is a polynomial over GF(2), its checksum the remainder of that polynomial times x^32
// modulo P. Three ways to the same remainder:
//
//   portable   eight table lookups for eight bytes
//   sse4.2     the crc32 instruction, eight bytes at a time, over three parts side by side; the sum
//   of
//              A followed by B is that of A times x^(8 bytes of B), plus that of B
//   vpclmul    folding: a 128-bit lane A that stands D bits before the end is congruent to
//              lo(A) * (x^(D+64) mod P) + hi(A) * (x^D mod P), which is as long as one lane and can
//              be added to the lane D bits later. Four vectors of four lanes are folded over 256
//              bytes at a time, until 64 bytes are left for the crc32 instruction. (Gopal et al.,
//              "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel
//              2009.)
//
// Bits are reflected: bit i of a 64-bit word is the coefficient of x^(63-i), and the product of two
// such words comes out one bit too low, so every constant is that of one power less.
#include "engine/base/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace telegrad {
namespace {

constexpr uint32_t kReflected = 0x82F63B78;  // 0x1EDC6F41, which is P without x^32

// tables[k][b]: the remainder of byte b with k zero bytes behind it.
struct Tables {
  std::array<std::array<uint32_t, 256>, 8> t{};
};
constexpr Tables MakeTables() {
  Tables tables;
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflected : 0);
    tables.t[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t before = tables.t[k - 1][b];
      tables.t[k][b] = (before >> 8) ^ tables.t[0][before & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = MakeTables();

uint32_t ExtendPortable(uint32_t crc, const void* data, size_t size) {
  const auto* p = static_cast<const uint8_t*>(data);
  const auto& t = kTables.t;
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    const uint32_t low =
        crc ^ (uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24);
    crc = t[7][low & 0xff] ^ t[6][low >> 8 & 0xff] ^ t[5][low >> 16 & 0xff] ^ t[4][low >> 24] ^
          t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
  }
  for (; size > 0; --size, ++p) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xff];
  return ~crc;
}

// Copies in pieces that are still in the first cache when they are copied.
template <uint32_t (*extend)(uint32_t, const void*, size_t)>
uint32_t CopyPieces(uint32_t crc, void* to, const void* from, size_t size) {
  constexpr size_t kPiece = 12 << 10;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  while (size > 0) {
    const size_t n = std::min(size, kPiece);
    crc = extend(crc, in, n);
    std::memcpy(out, in, n);
    out += n;
    in += n;
    size -= n;
  }
  return crc;
}

// a * b mod P, both reflected as a checksum is: bit 31 is the coefficient of x^0.
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & 0x80000000) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kReflected : 0);
  }
  return product;
}

// x^n mod P, reflected.
constexpr uint32_t PowerOfX(uint64_t n) {
  uint32_t power = 0x80000000, square = 0x40000000;  // 1 and x
  for (; n != 0; n >>= 1) {
    if ((n & 1) != 0) power = Multiply(power, square);
    square = Multiply(square, square);
  }
  return power;
}
static_assert(PowerOfX(32) == 0x82F63B78, "x^32 mod P is P without its highest term");

#if defined(__x86_64__)

inline uint64_t Word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// The instruction takes three cycles and one can begin in each: long data is cut into three parts
// that are summed up side by side.
__attribute__((target("sse4.2"))) uint32_t ExtendSse42(uint32_t crc, const void* data,
                                                       size_t size) {
  constexpr size_t kPart = 2048;
  constexpr uint32_t kOverOne = PowerOfX(8 * kPart), kOverTwo = PowerOfX(16 * kPart);
  const auto* p = static_cast<const uint8_t*>(data);
  uint64_t c = ~crc;
  for (; size >= 3 * kPart; size -= 3 * kPart, p += 3 * kPart) {
    uint64_t second = 0, third = 0;
    for (size_t at = 0; at < kPart; at += 8) {
      c = _mm_crc32_u64(c, Word(p + at));
      second = _mm_crc32_u64(second, Word(p + kPart + at));
      third = _mm_crc32_u64(third, Word(p + 2 * kPart + at));
    }
    c = Multiply(static_cast<uint32_t>(c), kOverTwo) ^
        Multiply(static_cast<uint32_t>(second), kOverOne) ^ third;
  }
  for (; size >= 8; size -= 8, p += 8) c = _mm_crc32_u64(c, Word(p));
  auto last = static_cast<uint32_t>(c);
  for (; size > 0; --size, ++p) last = _mm_crc32_u8(last, *p);
  return ~last;
}

#define TG_FOLDING_TARGET __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

// The constants with which a lane is folded over `bits`, for its halves: in a 64-bit word a
// remainder of 32 bits is the upper half.
struct FoldBy {
  uint64_t low, high;
};
constexpr FoldBy MakeFold(uint64_t bits) {
  return {uint64_t{PowerOfX(bits + 63)} << 32, uint64_t{PowerOfX(bits - 1)} << 32};
}

constexpr size_t kFoldBytes = 256;
constexpr size_t kLeastFolded = 2 * kFoldBytes;

template <typename Vector>
TG_FOLDING_TARGET inline Vector Fold(Vector lanes, Vector by, Vector next) {
  const Vector low = _mm512_clmulepi64_epi128(lanes, by, 0x00);
  const Vector high = _mm512_clmulepi64_epi128(lanes, by, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // the sum of three
}

enum class Stores { kNone, kCached, kPastCaches };

// Of a multiple of 256 bytes, at least 256.
template <Stores stores>
TG_FOLDING_TARGET uint32_t FoldBlocks(uint32_t crc, char* to, const char* from, size_t size) {
  constexpr FoldBy kBlock = MakeFold(kFoldBytes * 8), kVector = MakeFold(512);
  const __m512i block = _mm512_set4_epi64(kBlock.high, kBlock.low, kBlock.high, kBlock.low);
  const __m512i vector = _mm512_set4_epi64(kVector.high, kVector.low, kVector.high, kVector.low);
  __m512i v[4];
  const auto load = [&](size_t at, int i) TG_FOLDING_TARGET {
    const __m512i bytes = _mm512_loadu_si512(from + at + 64 * i);
    if (stores == Stores::kCached) _mm512_storeu_si512(to + at + 64 * i, bytes);
    if (stores == Stores::kPastCaches) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 64 * i), bytes);
    }
    return bytes;
  };
  for (int i = 0; i < 4; ++i) v[i] = load(0, i);
  v[0] = _mm512_xor_si512(v[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  for (size_t at = kFoldBytes; at < size; at += kFoldBytes) {
    for (int i = 0; i < 4; ++i) v[i] = Fold(v[i], block, load(at, i));
  }
  __m512i sum = v[0];
  for (int i = 1; i < 4; ++i) sum = Fold(sum, vector, v[i]);
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, sum);
  uint64_t c = 0;
  for (const uint64_t word : words) c = _mm_crc32_u64(c, word);
  if (stores == Stores::kPastCaches) _mm_sfence();
  return ~static_cast<uint32_t>(c);
}

uint32_t ExtendFolding(uint32_t crc, const void* data, size_t size) {
  const auto* p = static_cast<const char*>(data);
  if (size >= kLeastFolded) {
    const size_t blocks = size / kFoldBytes * kFoldBytes;
    crc = FoldBlocks<Stores::kNone>(crc, nullptr, p, blocks);
    p += blocks;
    size -= blocks;
  }
  return ExtendSse42(crc, p, size);
}

uint32_t CopyFolding(uint32_t crc, void* to, const void* from, size_t size) {
  constexpr size_t kVectorBytes = 64;
  constexpr size_t kPastCaches = size_t{32} << 10;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const auto simple = [&](size_t n) {
    crc = ExtendSse42(crc, in, n);
    std::memcpy(out, in, n);
    out += n;
    in += n;
    size -= n;
  };
  if (size >= kLeastFolded) {
    simple(-reinterpret_cast<uintptr_t>(out) % kVectorBytes);
    const size_t blocks = size / kFoldBytes * kFoldBytes;
    crc = blocks >= kPastCaches ? FoldBlocks<Stores::kPastCaches>(crc, out, in, blocks)
                                : FoldBlocks<Stores::kCached>(crc, out, in, blocks);
    out += blocks;
    in += blocks;
    size -= blocks;
  }
  simple(size);
  return crc;
}

#endif

constexpr size_t kMaxWays = 3;

std::array<Crc32cWay, kMaxWays + 1> FindWays() {
  std::array<Crc32cWay, kMaxWays + 1> ways{};
  size_t n = 0;
#if defined(__x86_64__)
  const bool sse42 = __builtin_cpu_supports("sse4.2");
  if (sse42 && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq") &&
      __builtin_cpu_supports("pclmul")) {
    ways[n++] = {"vpclmul", ExtendFolding, CopyFolding};
  }
  if (sse42) ways[n++] = {"sse4.2", ExtendSse42, CopyPieces<ExtendSse42>};
#endif
  ways[n++] = {"portable", ExtendPortable, CopyPieces<ExtendPortable>};
  return ways;
}

}  // namespace

const Crc32cWay* Crc32cWays() {
  static const std::array<Crc32cWay, kMaxWays + 1> ways = FindWays();
  return ways.data();
}

uint32_t Crc32c(const void* data, size_t size, uint32_t crc) {
  return Crc32cWays()->extend(crc, data, size);
}

uint32_t CopyCrc32c(void* to, const void* from, size_t size, uint32_t crc) {
  return Crc32cWays()->copy(crc, to, from, size);
}

}  // namespace telegrad
