// Loads and stores of vectors in global, generic and scratch memory.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/fakes/amd/memory_row.h"
#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

constexpr std::string_view kAccessModifiers =
    "offset glc slc dlc nt sc0 sc1 scc lds offen th scope offset0 offset1 gds nv cpol";

// Sources: address, scalar address, then data of a store. Loads: result, then the addresses.
bool DecodeAddresses(Decoder& d, Space space, size_t vector, size_t scalar) {
  const auto& operands = d.text().operands;
  const size_t last = space == Space::kFlat ? std::max<size_t>(vector, 1) : scalar;
  if (last >= operands.size()) return d.Fail("lacks an operand");
  const bool off = space != Space::kFlat && operands[scalar] == "off";
  const uint32_t words = space == Space::kFlat || (space == Space::kGlobal && off) ? 2 : 1;
  if (!d.ReadSource(vector, Type::kNone, operands[vector] == "off" ? 1 : words)) return false;
  if (space == Space::kFlat) {
    ++d.out().sources;
    return true;
  }
  return d.ReadSource(scalar, Type::kNone, space == Space::kGlobal && !off ? 2 : 1);
}

// buffer_load_dword v0, v1, s[0:3], s4 offen offset:8: only for scratch, whose buffer the kernel
// was given. The address and the scalar offset, then, behind what else the instruction reads, the
// buffer.
bool DecodeBuffer(Decoder& d, size_t vector) {
  const auto& operands = d.text().operands;
  if (!d.Expect(4)) return false;
  if (d.text().Has("offen") != (operands[vector] != "off")) {
    return d.Fail("has an address form that is not supported");
  }
  return d.ReadSource(vector, Type::kNone, 1) && d.ReadSource(3, Type::kB32);
}

bool DecodeLoad(Decoder& d, const Row& row) {
  const Space space = MemorySpace(row);
  const uint32_t words = Words(MemoryBytes(row));
  if (!d.ReadResult(0, Type::kNone, words)) return false;
  if (space == Space::kBuffer ? !DecodeBuffer(d, 1) || !d.ReadSource(2, Type::kNone, 4)
                              : !DecodeAddresses(d, space, 1, 2)) {
    return false;
  }
  if (space != Space::kBuffer && !d.Expect(space == Space::kFlat ? 2 : 3)) return false;
  SetCounter(d, space, true);
  return d.OnlyModifiers(kAccessModifiers) && d.ReadOffset("offset", &d.out().offset) &&
         (!d.text().Has("lds") || d.Fail("loads to local memory"));
}

bool DecodeStore(Decoder& d, const Row& row) {
  const Space space = MemorySpace(row);
  const uint32_t words = Words(MemoryBytes(row));
  if (space == Space::kBuffer) {
    if (!DecodeBuffer(d, 1) || !d.ReadSource(0, Type::kNone, words) ||
        !d.ReadSource(2, Type::kNone, 4)) {
      return false;
    }
  } else {
    if (!DecodeAddresses(d, space, 0, 2) || !d.ReadSource(1, Type::kNone, words)) return false;
    if (!d.Expect(space == Space::kFlat ? 2 : 3)) return false;
  }
  SetCounter(d, space, false);
  return d.OnlyModifiers(kAccessModifiers) && d.ReadOffset("offset", &d.out().offset);
}

uint32_t Extended(const uint8_t* from, uint32_t bytes, bool sign) {
  uint32_t word = 0;
  std::memcpy(&word, from, bytes);
  if (!sign) return word;
  return bytes == 1 ? static_cast<uint32_t>(static_cast<int8_t>(word))
                    : static_cast<uint32_t>(static_cast<int16_t>(word));
}

// Bytes of global memory in whole pieces of 64, where consecutive lanes that share one count it
// once.
struct Traffic {
  const uint8_t* last = nullptr;
  uint64_t bytes = 0;
  void Touch(const uint8_t* at, uint32_t size) {
    const auto* piece =
        reinterpret_cast<const uint8_t*>(reinterpret_cast<uintptr_t>(at) & ~uintptr_t{63});
    const auto* end = reinterpret_cast<const uint8_t*>(
        (reinterpret_cast<uintptr_t>(at) + size - 1) & ~uintptr_t{63});
    for (; piece <= end; piece += 64) {
      if (piece == last) continue;
      last = piece;
      bytes += 64;
    }
  }
};

void Load(Wave& w, const Instruction& i) {
  const Row& row = *i.row;
  const Space space = MemorySpace(row);
  const uint32_t bytes = MemoryBytes(row);
  const uint32_t words = Words(bytes);
  const uint16_t to = i.result[0].reg;
  const bool part = (row.value & kHalfOnly) != 0;
  const bool upper = (row.value & kUpperHalf) != 0;
  const bool keeps = part && w.target().keeps_high;
  Traffic traffic;
  for (uint64_t rest = w.exec(); rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint8_t* state = nullptr;
    const uint8_t* from = LaneAddress(w, i, space, {0, 1}, lane, bytes, Access::kRead, &state);
    if (from == nullptr) return;
    if (state == nullptr) traffic.Touch(from, bytes);
    const uint64_t bit = uint64_t{1} << lane;
    if (bytes < 4) {
      uint32_t word = Extended(from, bytes, (row.value & kSigned) != 0);
      const uint32_t old = keeps ? w.Vector(to)[lane] : 0;
      if (upper) {
        word = word << 16 | (old & 0xffff);
      } else if (part) {
        word = (word & 0xffff) | (old & 0xffff0000);
      }
      w.Vector(to)[lane] = word;
    } else {
      for (uint32_t word = 0; word < words; ++word) {
        std::memcpy(&w.Vector(to + word)[lane], from + 4 * word, 4);
      }
    }
    for (uint32_t word = 0; word < words; ++word) {
      bool missing = false;
      for (uint32_t b = 4 * word; state != nullptr && b < std::min(bytes, 4 * word + 4); ++b) {
        missing |= state[b] == 0;
      }
      if (missing) {
        w.undefined(to + word) |= bit;
      } else {
        w.undefined(to + word) &= ~bit;
      }
    }
  }
  w.group().state().counts.global_bytes += traffic.bytes;
  CountAccess(w, i, space, false, to, static_cast<uint8_t>(words));
}

void Store(Wave& w, const Instruction& i) {
  const Row& row = *i.row;
  const Space space = MemorySpace(row);
  const uint32_t bytes = MemoryBytes(row);
  const uint32_t words = Words(bytes);
  const Operand& data = i.source[2];
  const bool upper = (row.value & kUpperHalf) != 0;
  Traffic traffic;
  for (uint64_t rest = w.exec(); rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint8_t* state = nullptr;
    uint8_t* to = LaneAddress(w, i, space, {0, 1}, lane, bytes, Access::kWrite, &state);
    if (to == nullptr) return;
    const bool repeated = state == nullptr && w.repeated();
    if (state == nullptr) traffic.Touch(to, bytes);
    for (uint32_t word = 0; word < words; ++word) {
      uint32_t value = w.Vector(data.reg + word)[lane];
      if (upper) value >>= 16;
      const uint32_t size = std::min(bytes - 4 * word, 4u);
      const bool defined = (w.undefined(data.reg + word) >> lane & 1) == 0;
      if (state != nullptr) {
        std::memset(state + 4 * word, defined ? 1 : 0, size);
      } else if (!defined) {
        return w.Fail(
            FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
            "stores v" + std::to_string(data.reg + word) + ", which has no defined value");
      }
      if (repeated && std::memcmp(to + 4 * word, &value, size) != 0) {
        return w.Fail(FaultCode::kRace, i, static_cast<int>(lane),
                      "two lanes store different values at one address");
      }
      std::memcpy(to + 4 * word, &value, size);
    }
  }
  w.group().state().counts.global_bytes += traffic.bytes;
  ++w.group().state().counts.global_stores;
  CountAccess(w, i, space, true, 0, 0);
}

struct Form {
  const char* old_name;
  const char* new_name;  // since gfx11
  uint32_t value;
};
constexpr Form kLoads[] = {
    {"load_dword", "load_b32", 4},
    {"load_dwordx2", "load_b64", 8},
    {"load_dwordx3", "load_b96", 12},
    {"load_dwordx4", "load_b128", 16},
    {"load_ubyte", "load_u8", 1},
    {"load_sbyte", "load_i8", 1 | kSigned},
    {"load_ushort", "load_u16", 2},
    {"load_sshort", "load_i16", 2 | kSigned},
    {"load_ubyte_d16", "load_d16_u8", 1 | kHalfOnly},
    {"load_ubyte_d16_hi", "load_d16_hi_u8", 1 | kHalfOnly | kUpperHalf},
    {"load_sbyte_d16", "load_d16_i8", 1 | kSigned | kHalfOnly},
    {"load_sbyte_d16_hi", "load_d16_hi_i8", 1 | kSigned | kHalfOnly | kUpperHalf},
    {"load_short_d16", "load_d16_b16", 2 | kHalfOnly},
    {"load_short_d16_hi", "load_d16_hi_b16", 2 | kHalfOnly | kUpperHalf},
};
constexpr Form kStores[] = {
    {"store_dword", "store_b32", 4},    {"store_dwordx2", "store_b64", 8},
    {"store_dwordx3", "store_b96", 12}, {"store_dwordx4", "store_b128", 16},
    {"store_byte", "store_b8", 1},      {"store_byte_d16_hi", "store_d16_hi_b8", 1 | kUpperHalf},
    {"store_short", "store_b16", 2},    {"store_short_d16_hi", "store_d16_hi_b16", 2 | kUpperHalf},
};

RowList MakeGlobalRows() {
  RowList list;
  constexpr std::pair<const char*, Space> kSpaces[] = {{"global_", Space::kGlobal},
                                                       {"flat_", Space::kFlat},
                                                       {"scratch_", Space::kScratch},
                                                       {"buffer_", Space::kBuffer}};
  for (const auto& [prefix, space] : kSpaces) {
    const std::string name(prefix);
    for (const Form& form : kLoads) {
      list.Add(name + form.old_name + "|" + name + form.new_name, Load, DecodeLoad,
               form.value | SpaceBits(space));
    }
    for (const Form& form : kStores) {
      list.Add(name + form.old_name + "|" + name + form.new_name, Store, DecodeStore,
               form.value | SpaceBits(space));
    }
  }
  return list;
}

}  // namespace

std::span<const Row> GlobalRows() {
  static const RowList list = MakeGlobalRows();
  return list.rows();
}

}  // namespace fakeamd
