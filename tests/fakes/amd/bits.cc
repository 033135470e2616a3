// Shifts, logic and fields of bits of vectors.
#include <algorithm>
#include <bit>

#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

u32 FieldUnsigned(u32 a, u32 b, u32 c) {
  const u32 width = c & 31;
  return a >> (b & 31) & ((1u << width) - 1);
}

i32 FieldSigned(i32 a, u32 b, u32 c) {
  const u32 offset = b & 31;
  const u32 width = c & 31;
  if (width == 0) return 0;
  if (offset + width >= 32) return a >> offset;
  return static_cast<i32>(static_cast<u32>(a) << (32 - offset - width)) >> (32 - width);
}

// ISA documents, "V_PERM_B32": bytes of {a, b}, of which b is the lower one, or constants.
u32 Permute(u32 a, u32 b, u32 selectors) {
  const u64 bytes = u64{a} << 32 | b;
  u32 result = 0;
  for (u32 k = 0; k < 4; ++k) {
    const u32 s = selectors >> (8 * k) & 0xff;
    u32 byte = 0;
    if (s < 8) {
      byte = static_cast<u32>(bytes >> (8 * s)) & 0xff;
    } else if (s < 12) {
      byte = (bytes >> (16 * (s - 8) + 15) & 1) != 0 ? 0xff : 0;
    } else {
      byte = s == 12 ? 0 : 0xff;
    }
    result |= byte << (8 * k);
  }
  return result;
}

u32 Reversed(u32 x) {
  u32 result = 0;
  for (int b = 0; b < 32; ++b) result |= (x >> b & 1) << (31 - b);
  return result;
}

constexpr uint32_t kCopies = kPassesUndefined;

constexpr Row kBitRows[] = {
    LaneRow<[](u32 a, u32 b) { return a & b; }>("v_and_b32"),
    LaneRow<[](u32 a, u32 b) { return a | b; }>("v_or_b32"),
    LaneRow<[](u32 a, u32 b) { return a ^ b; }>("v_xor_b32"),
    LaneRow<[](u32 a, u32 b) { return ~(a ^ b); }>("v_xnor_b32"),
    LaneRow<[](u32 a) { return ~a; }>("v_not_b32"),
    LaneRow<[](u16 a, u16 b) { return static_cast<u16>(a & b); }>("v_and_b16"),
    LaneRow<[](u16 a, u16 b) { return static_cast<u16>(a | b); }>("v_or_b16"),
    LaneRow<[](u16 a, u16 b) { return static_cast<u16>(a ^ b); }>("v_xor_b16"),
    LaneRow<[](u16 a) { return static_cast<u16>(~a); }>("v_not_b16"),
    LaneRow<[](u32 a, u32 b, u32 c) { return (a & b) | c; }>("v_and_or_b32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return a | b | c; }>("v_or3_b32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return a ^ b ^ c; }>("v_xor3_b32"),
    LaneRow<[](u32 a, u32 b) { return b << (a & 31); }>("v_lshlrev_b32"),
    LaneRow<[](u32 a, u32 b) { return (b >> (a & 31)); }>("v_lshrrev_b32"),
    LaneRow<[](u32 a, i32 b) { return (b >> (a & 31)); }>("v_ashrrev_i32"),
    LaneRow<[](u32 a, u64 b) { return b << (a & 63); }>("v_lshlrev_b64"),
    LaneRow<[](u32 a, u64 b) { return (b >> (a & 63)); }>("v_lshrrev_b64"),
    LaneRow<[](u32 a, i64 b) { return (b >> (a & 63)); }>("v_ashrrev_i64"),
    LaneRow<[](u16 a, u16 b) { return static_cast<u16>(b << (a & 15)); }>("v_lshlrev_b16"),
    LaneRow<[](u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); }>("v_lshrrev_b16"),
    LaneRow<[](u16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); }>("v_ashrrev_i16"),
    LaneRow<[](u32 a, u32 b, u32 c) { return a << (b & 31) | c; }>("v_lshl_or_b32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return FieldUnsigned(a, b, c); }>("v_bfe_u32"),
    LaneRow<[](i32 a, u32 b, u32 c) { return FieldSigned(a, b, c); }>("v_bfe_i32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); }>("v_bfi_b32"),
    LaneRow<[](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }>("v_bfm_b32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> (c & 31)); }>(
        "v_alignbit_b32"),
    LaneRow<[](u32 a, u32 b, u32 c) {
      return static_cast<u32>((u64{a} << 32 | b) >> (8 * (c & 3)));
    }>("v_alignbyte_b32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return Permute(a, b, c); }>("v_perm_b32", kCopies),
    LaneRow<[](u32 a) { return Reversed(a); }>("v_bfrev_b32"),
    LaneRow<[](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; }>("v_bcnt_u32_b32"),
    LaneRow<[](u32 a) { return a == 0 ? -1 : std::countl_zero(a); }>("v_ffbh_u32|v_clz_i32_u32"),
    LaneRow<[](u32 a) { return a == 0 ? -1 : std::countr_zero(a); }>("v_ffbl_b32|v_ctz_i32_b32"),
    // Bits below the top one that are equal to it; -1 if all are.
    LaneRow<[](i32 a) {
      const u32 x = static_cast<u32>(a < 0 ? ~a : a);
      return x == 0 ? -1 : std::countl_zero(x);
    }>("v_ffbh_i32|v_cls_i32"),
    LaneRow<[](u32 a) { return a; }>(
        "v_mov_b32|v_accvgpr_write_b32|v_accvgpr_read_b32|v_accvgpr_mov_b32|"
        "v_accvgpr_write|v_accvgpr_read|v_accvgpr_mov",
        kCopies),
    LaneRow<[](u64 a) { return a; }>("v_mov_b64", kCopies),
    LaneRow<[](u16 a) { return a; }>("v_mov_b16", kCopies),
};

}  // namespace

std::span<const Row> BitRows() { return kBitRows; }

}  // namespace fakeamd
