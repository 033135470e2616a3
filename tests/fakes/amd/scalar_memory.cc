// Loads of scalar registers.
#include <algorithm>
#include <cstring>

#include "tests/fakes/amd/memory_row.h"

namespace fakeamd {
namespace {

bool DecodeScalarLoad(Decoder& d, const Row& row) {
  const uint32_t words = Words(MemoryBytes(row));
  if (!d.Expect(3) || !d.ReadResult(0, Type::kNone, words) || !d.ReadSource(1, Type::kB64) ||
      !d.ReadSource(2, Type::kB32)) {
    return false;
  }
  // An offset of 21 or 24 bits has a sign.
  d.out().loads = true;
  d.out().counter =
      static_cast<uint8_t>(d.target().major >= 12 ? Counter::kScalar : Counter::kLocal);
  d.out().event = static_cast<uint8_t>(EventKind::kScalar);
  return d.OnlyModifiers("offset glc dlc nv th scope") && d.ReadOffset("offset", &d.out().offset);
}

void ScalarLoad(Wave& w, const Instruction& i) {
  const uint32_t bytes = MemoryBytes(*i.row);
  const uint32_t words = Words(bytes);
  const Operand& offset = i.source[1];
  uint64_t address = w.Scalar(i, i.source[0]) + static_cast<uint64_t>(int64_t{i.offset});
  const uint64_t more = w.Scalar(i, offset);
  // A constant is signed, a register is not.
  address += offset.kind == Operand::Kind::kConstant
                 ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(static_cast<uint32_t>(more))})
                 : more;
  if (w.failed()) return;
  if (address % std::min(bytes, 4u) != 0) {  // the hardware drops these bits
    return w.Fail(FaultCode::kMisaligned, i, -1, "misaligned scalar load from " + Hex(address));
  }
  const uint8_t* from = w.Global(i, 0, address, bytes, Access::kRead);
  if (from == nullptr) return;
  const uint16_t to = i.result[0].reg;
  if (bytes < 4) {
    uint32_t word = 0;
    std::memcpy(&word, from, bytes);
    if ((i.row->value & kSigned) != 0) {
      word = bytes == 1 ? static_cast<uint32_t>(static_cast<int8_t>(word))
                        : static_cast<uint32_t>(static_cast<int16_t>(word));
    }
    w.PutWord(to, word);
  } else {
    for (uint32_t k = 0; k < words; ++k) {
      uint32_t word = 0;
      std::memcpy(&word, from + 4 * k, 4);
      w.PutWord(to + k, word);
    }
  }
  w.counters().Add(static_cast<Counter>(i.counter), EventKind::kScalar, to,
                   static_cast<uint8_t>(words), true, w.next() - 1);
}

constexpr Row LoadRow(std::string_view names, uint32_t value) {
  return {.names = names, .execute = ScalarLoad, .decode = DecodeScalarLoad, .value = value};
}

constexpr Row kScalarMemoryRows[] = {
    LoadRow("s_load_dword|s_load_b32", 4),
    LoadRow("s_load_dwordx2|s_load_b64", 8),
    LoadRow("s_load_b96", 12),
    LoadRow("s_load_dwordx4|s_load_b128", 16),
    LoadRow("s_load_dwordx8|s_load_b256", 32),
    LoadRow("s_load_dwordx16|s_load_b512", 64),
    LoadRow("s_load_u8", 1),
    LoadRow("s_load_i8", 1 | kSigned),
    LoadRow("s_load_u16", 2),
    LoadRow("s_load_i16", 2 | kSigned),
};

}  // namespace

std::span<const Row> ScalarMemoryRows() { return kScalarMemoryRows; }

}  // namespace fakeamd
