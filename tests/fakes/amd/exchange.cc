// Exchanges between lanes by the way of local memory, which they do not touch: ds_bpermute (each
// lane says from where), ds_permute (each lane says to where), ds_swizzle (a pattern in the
// instruction).
#include <bit>
#include <sstream>

#include "tests/fakes/amd/memory_row.h"

namespace fakeamd {
namespace {

void Backward(Wave& w, const Instruction& i) {
  const uint32_t from = i.source[1].reg;
  alignas(64) uint32_t out[kMaxLanes] = {};
  uint64_t undefined = 0;
  for (uint64_t rest = w.exec(); rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    if ((w.undefined(i.source[0].reg) >> lane & 1) != 0) {
      return w.Fail(FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
                    "its address has no defined value");
    }
    const uint32_t address = w.Vector(i.source[0].reg)[lane] + static_cast<uint32_t>(i.offset);
    const uint32_t source = address / 4 % w.lanes();
    if ((w.exec() >> source & 1) == 0) continue;  // an inactive lane gives 0
    out[lane] = w.Vector(from)[source];
    undefined |= (w.undefined(from) >> source & 1) << lane;
  }
  w.set_passed(undefined);
  w.Put(i, 0, Type::kB32, out, nullptr);
  CountAccess(w, i, Space::kLocal, false, i.result[0].reg, 1);
}

void Forward(Wave& w, const Instruction& i) {
  const uint32_t from = i.source[1].reg;
  alignas(64) uint32_t out[kMaxLanes] = {};
  uint64_t undefined = 0;
  for (uint64_t rest = w.exec(); rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    if ((w.undefined(i.source[0].reg) >> lane & 1) != 0) {
      return w.Fail(FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
                    "its address has no defined value");
    }
    const uint32_t address = w.Vector(i.source[0].reg)[lane] + static_cast<uint32_t>(i.offset);
    const uint32_t to = address / 4 % w.lanes();
    out[to] = w.Vector(from)[lane];
    undefined |= (w.undefined(from) >> lane & 1) << to;
  }
  w.set_passed(undefined);
  w.Put(i, 0, Type::kB32, out, nullptr);
  CountAccess(w, i, Space::kLocal, false, i.result[0].reg, 1);
}

bool DecodePermute32(Decoder& d, const Row&) {
  SetCounter(d, Space::kLocal, true);
  return d.Expect(3) && d.ReadResult(0, Type::kB32) && d.ReadSource(1, Type::kB32) &&
         d.ReadSource(2, Type::kB32) && d.OnlyModifiers("offset") &&
         d.ReadOffset("offset", &d.out().offset);
}

// LLVM, AMDGPU operand syntax, "swizzle": what a lane's number becomes, as masks and, or, xor of 5
// bits, or a permutation of four.
bool DecodeSwizzle(Decoder& d, const Row&) {
  SetCounter(d, Space::kLocal, true);
  if (!d.Expect(2) || !d.ReadResult(0, Type::kB32) || !d.ReadSource(1, Type::kB32)) return false;
  const auto it = d.text().modifiers.find("offset");
  std::string pattern = it == d.text().modifiers.end() ? "0" : it->second;
  LaneMove& move = d.out().move;
  const auto masks = [&](uint32_t keep, uint32_t set, uint32_t flip) {
    move.kind = LaneMove::Kind::kRowXmask;
    move.value = {static_cast<uint8_t>(keep), static_cast<uint8_t>(set),
                  static_cast<uint8_t>(flip)};
    return true;
  };
  const auto quad = [&](uint32_t a, uint32_t b, uint32_t c, uint32_t e) {
    move.kind = LaneMove::Kind::kQuad;
    move.value = {static_cast<uint8_t>(a), static_cast<uint8_t>(b), static_cast<uint8_t>(c),
                  static_cast<uint8_t>(e)};
    return true;
  };
  if (const auto number = ParseInteger(pattern)) {
    const auto bits = static_cast<uint32_t>(*number);
    if (bits >> 15 == 0) return masks(bits & 31, bits >> 5 & 31, bits >> 10 & 31);
    if (bits >> 8 == 0x80) return quad(bits & 3, bits >> 2 & 3, bits >> 4 & 3, bits >> 6 & 3);
    return d.Fail("has a pattern that is not supported");
  }
  for (char& c : pattern) {
    if (c == '(' || c == ')' || c == ',' || c == '"') c = ' ';
  }
  std::istringstream words(pattern);
  std::string swizzle, kind;
  words >> swizzle >> kind;
  if (kind == "BITMASK_PERM") {
    std::string bits;
    words >> bits;
    if (bits.size() != 5) return d.Fail("has a pattern that is not supported");
    uint32_t keep = 0, set = 0, flip = 0;
    for (uint32_t b = 0; b < 5; ++b) {
      const char c = bits[4 - b];
      if (c == 'p' || c == 'i') keep |= 1u << b;
      if (c == '1') set |= 1u << b;
      if (c == 'i') flip |= 1u << b;
    }
    return masks(keep, set, flip);
  }
  uint32_t number[4] = {};
  for (uint32_t& n : number) words >> n;
  if (kind == "QUAD_PERM") return quad(number[0], number[1], number[2], number[3]);
  if (kind == "BROADCAST") return masks(~(number[0] - 1) & 31, number[1], 0);
  if (kind == "SWAP") return masks(31, 0, number[0]);
  if (kind == "REVERSE") return masks(31, 0, number[0] - 1);
  return d.Fail("has a pattern that is not supported");
}

void Swizzle(Wave& w, const Instruction& i) {
  const uint32_t from = i.source[0].reg;
  alignas(64) uint32_t out[kMaxLanes] = {};
  uint64_t undefined = 0;
  const auto& value = i.move.value;
  for (uint32_t lane = 0; lane < w.lanes(); ++lane) {
    const uint32_t source = i.move.kind == LaneMove::Kind::kQuad
                                ? (lane & ~3u) + value[lane & 3]
                                : (lane & ~31u) + (((lane & value[0]) | value[1]) ^ value[2]);
    if ((w.exec() >> source & 1) == 0) continue;
    out[lane] = w.Vector(from)[source];
    undefined |= (w.undefined(from) >> source & 1) << lane;
  }
  w.set_passed(undefined);
  w.Put(i, 0, Type::kB32, out, nullptr);
  CountAccess(w, i, Space::kLocal, false, i.result[0].reg, 1);
}

constexpr Row kExchangeRows[] = {
    {.names = "ds_bpermute_b32", .execute = Backward, .decode = DecodePermute32},
    {.names = "ds_permute_b32", .execute = Forward, .decode = DecodePermute32},
    {.names = "ds_swizzle_b32", .execute = Swizzle, .decode = DecodeSwizzle},
};

}  // namespace

std::span<const Row> ExchangeRows() { return kExchangeRows; }

}  // namespace fakeamd
