// Loads and stores of local memory, single ones and those of two values at two offsets.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/fakes/amd/banks.h"
#include "tests/fakes/amd/memory_row.h"
#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

// Row::value of accesses to two places: the unit of the offsets.
constexpr uint32_t kTwoShift = 16;
uint32_t OffsetUnit(const Row& row) { return row.value >> kTwoShift; }

bool DecodeOffsets(Decoder& d, const Row& row) {
  if (OffsetUnit(row) == 0)
    return d.OnlyModifiers("offset") && d.ReadOffset("offset", &d.out().offset);
  return d.OnlyModifiers("offset0 offset1") && d.ReadOffset("offset0", &d.out().offset) &&
         d.ReadOffset("offset1", &d.out().offset1);
}

bool DecodeLocalLoad(Decoder& d, const Row& row) {
  const uint32_t words = Words(MemoryBytes(row)) * (OffsetUnit(row) != 0 ? 2 : 1);
  SetCounter(d, Space::kLocal, true);
  return d.Expect(2) && d.ReadResult(0, Type::kNone, words) && d.ReadSource(1, Type::kB32) &&
         DecodeOffsets(d, row);
}

bool DecodeLocalStore(Decoder& d, const Row& row) {
  const uint32_t words = Words(MemoryBytes(row));
  const bool two = OffsetUnit(row) != 0;
  SetCounter(d, Space::kLocal, false);
  return d.Expect(two ? 3 : 2) && d.ReadSource(0, Type::kB32) &&
         d.ReadSource(1, Type::kNone, words) && (!two || d.ReadSource(2, Type::kNone, words)) &&
         DecodeOffsets(d, row);
}

// The address of a lane, or nothing after a fault.
bool LocalAddress(Wave& w, const Instruction& i, uint32_t lane, uint32_t* address) {
  const Operand& from = i.source[0];
  if ((w.undefined(from.reg) >> lane & 1) != 0) {
    w.Fail(FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
           "its address has no defined value");
    return false;
  }
  *address = w.Vector(from.reg)[lane];
  return true;
}

// The places of an access in units of the row.
struct Places {
  uint32_t count = 1;
  uint32_t offset[2] = {0, 0};
  explicit Places(const Instruction& i) {
    const uint32_t unit = OffsetUnit(*i.row);
    offset[0] = static_cast<uint32_t>(i.offset) * (unit == 0 ? 1 : unit);
    if (unit == 0) return;
    count = 2;
    offset[1] = static_cast<uint32_t>(i.offset1) * unit;
  }
};

void CountBanks(Wave& w, const Instruction& i, const Places& places, bool loads) {
  const uint32_t bytes = MemoryBytes(*i.row);
  const LaneOrder order = loads && bytes == 16 && w.target().major == 9
                              ? LaneOrder::kLoadsOf16OnGfx9
                              : LaneOrder::kNeighbours;
  const uint32_t* addresses = w.Vector(i.source[0].reg);
  Counts& counts = w.group().state().counts;
  uint64_t& conflicts = loads ? counts.load_conflicts : counts.store_conflicts;
  for (uint32_t p = 0; p < places.count; ++p) {
    conflicts += BankConflicts(addresses, places.offset[p], w.exec(), bytes, order);
  }
}

// Sums wrap: LLVM gives offsets to addresses that are negative (its hasUsableDSOffset).
uint64_t PlaceAt(uint32_t address, uint32_t offset) { return uint32_t{address + offset}; }

void LoadLocal(Wave& w, const Instruction& i) {
  const Row& row = *i.row;
  const uint32_t bytes = MemoryBytes(row);
  const uint32_t words = Words(bytes);
  const Places places(i);
  const bool part = (row.value & kHalfOnly) != 0;
  const bool upper = (row.value & kUpperHalf) != 0;
  const bool keeps = part && w.target().keeps_high;
  CountBanks(w, i, places, /*loads=*/true);
  for (uint64_t rest = w.exec(); rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint64_t bit = uint64_t{1} << lane;
    uint32_t address = 0;
    if (!LocalAddress(w, i, lane, &address)) return;
    for (uint32_t p = 0; p < places.count; ++p) {
      const uint64_t offset = PlaceAt(address, places.offset[p]);
      const uint8_t* from = w.Local(i, lane, offset, bytes, Access::kRead);
      if (from == nullptr) return;
      const uint8_t* state = w.group().local_state(offset);
      for (uint32_t word = 0; word < words; ++word) {
        const uint32_t to = i.result[0].reg + p * words + word;
        const uint32_t size = std::min(bytes - 4 * word, 4u);
        uint32_t value = 0;
        std::memcpy(&value, from + 4 * word, size);
        if ((row.value & kSigned) != 0) {
          value = size == 1 ? static_cast<uint32_t>(static_cast<int8_t>(value))
                            : static_cast<uint32_t>(static_cast<int16_t>(value));
        }
        if (part) {
          const uint32_t old = keeps ? w.Vector(to)[lane] : 0;
          value = upper ? value << 16 | (old & 0xffff) : (value & 0xffff) | (old & 0xffff0000);
        }
        w.Vector(to)[lane] = value;
        bool missing = false;
        for (uint32_t b = 0; b < size; ++b) missing |= state[4 * word + b] == 0;
        w.undefined(to) = missing ? w.undefined(to) | bit : w.undefined(to) & ~bit;
      }
    }
  }
  CountAccess(w, i, Space::kLocal, false, i.result[0].reg, i.result[0].words);
}

void StoreLocal(Wave& w, const Instruction& i) {
  const Row& row = *i.row;
  const uint32_t bytes = MemoryBytes(row);
  const uint32_t words = Words(bytes);
  const Places places(i);
  const bool upper = (row.value & kUpperHalf) != 0;
  CountBanks(w, i, places, /*loads=*/false);
  for (uint64_t rest = w.exec(); rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint32_t address = 0;
    if (!LocalAddress(w, i, lane, &address)) return;
    for (uint32_t p = 0; p < places.count; ++p) {
      const uint64_t offset = PlaceAt(address, places.offset[p]);
      uint8_t* to = w.Local(i, lane, offset, bytes, Access::kWrite);
      if (to == nullptr) return;
      const bool repeated = w.repeated();
      uint8_t* state = w.group().local_state(offset);
      for (uint32_t word = 0; word < words; ++word) {
        const uint32_t reg = i.source[1 + p].reg + word;
        const uint32_t size = std::min(bytes - 4 * word, 4u);
        uint32_t value = w.Vector(reg)[lane];
        if (upper) value >>= 16;
        if (repeated && std::memcmp(to + 4 * word, &value, size) != 0) {
          return w.Fail(FaultCode::kRace, i, static_cast<int>(lane),
                        "two lanes store different values at one address");
        }
        std::memcpy(to + 4 * word, &value, size);
        std::memset(state + 4 * word, (w.undefined(reg) >> lane & 1) != 0 ? 0 : 1, size);
      }
    }
  }
  CountAccess(w, i, Space::kLocal, true, 0, 0);
}

struct LocalForm {
  const char* names;
  bool store;
  uint32_t value;
};
constexpr uint32_t Two(uint32_t bytes, uint32_t unit) { return bytes | unit << kTwoShift; }

constexpr LocalForm kForms[] = {
    {"ds_read_b32|ds_load_b32", false, 4},
    {"ds_read_b64|ds_load_b64", false, 8},
    {"ds_read_b96|ds_load_b96", false, 12},
    {"ds_read_b128|ds_load_b128", false, 16},
    {"ds_read_u8|ds_load_u8", false, 1},
    {"ds_read_i8|ds_load_i8", false, 1 | kSigned},
    {"ds_read_u16|ds_load_u16", false, 2},
    {"ds_read_i16|ds_load_i16", false, 2 | kSigned},
    {"ds_read_u8_d16|ds_load_u8_d16", false, 1 | kHalfOnly},
    {"ds_read_u8_d16_hi|ds_load_u8_d16_hi", false, 1 | kHalfOnly | kUpperHalf},
    {"ds_read_i8_d16|ds_load_i8_d16", false, 1 | kSigned | kHalfOnly},
    {"ds_read_i8_d16_hi|ds_load_i8_d16_hi", false, 1 | kSigned | kHalfOnly | kUpperHalf},
    {"ds_read_u16_d16|ds_load_u16_d16", false, 2 | kHalfOnly},
    {"ds_read_u16_d16_hi|ds_load_u16_d16_hi", false, 2 | kHalfOnly | kUpperHalf},
    {"ds_read2_b32|ds_load_2addr_b32", false, Two(4, 4)},
    {"ds_read2_b64|ds_load_2addr_b64", false, Two(8, 8)},
    {"ds_read2st64_b32|ds_load_2addr_stride64_b32", false, Two(4, 256)},
    {"ds_read2st64_b64|ds_load_2addr_stride64_b64", false, Two(8, 512)},
    {"ds_write_b32|ds_store_b32", true, 4},
    {"ds_write_b64|ds_store_b64", true, 8},
    {"ds_write_b96|ds_store_b96", true, 12},
    {"ds_write_b128|ds_store_b128", true, 16},
    {"ds_write_b8|ds_store_b8", true, 1},
    {"ds_write_b16|ds_store_b16", true, 2},
    {"ds_write_b8_d16_hi|ds_store_b8_d16_hi", true, 1 | kUpperHalf},
    {"ds_write_b16_d16_hi|ds_store_b16_d16_hi", true, 2 | kUpperHalf},
    {"ds_write2_b32|ds_store_2addr_b32", true, Two(4, 4)},
    {"ds_write2_b64|ds_store_2addr_b64", true, Two(8, 8)},
    {"ds_write2st64_b32|ds_store_2addr_stride64_b32", true, Two(4, 256)},
    {"ds_write2st64_b64|ds_store_2addr_stride64_b64", true, Two(8, 512)},
};

RowList MakeLocalRows() {
  RowList list;
  for (const LocalForm& form : kForms) {
    list.Add(form.names, form.store ? StoreLocal : LoadLocal,
             form.store ? DecodeLocalStore : DecodeLocalLoad,
             form.value | SpaceBits(Space::kLocal));
  }
  return list;
}

}  // namespace

std::span<const Row> LocalRows() {
  static const RowList list = MakeLocalRows();
  return list.rows();
}

}  // namespace fakeamd
