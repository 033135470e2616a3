// Vector instructions whose lanes are not independent, or that select by lane: what reads or writes
// single lanes, counts lanes, exchanges between lanes.
#include <bit>

#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

// Source 1 where the mask is set, else source 0; so what is undefined there matters only where it
// is taken.
void SelectLanes(Wave& w, const Instruction& i) {
  alignas(64) Lanes room[2];
  const uint64_t mask = w.FetchMask(i, 2);
  const LaneView first = w.Fetch(i, 0, i.row->source[0], room[0], nullptr);
  const uint64_t first_passed = w.passed();
  w.set_passed(0);
  const LaneView second = w.Fetch(i, 1, i.row->source[1], room[1], nullptr);
  const uint64_t second_passed = w.passed();
  w.set_passed((first_passed & ~mask) | (second_passed & mask));
  if (w.failed()) return;
  alignas(64) Lanes low;
  for (uint32_t l = 0; l < w.lanes(); ++l) {
    low[l] = (mask >> l & 1) != 0 ? second.low[l] : first.low[l];
  }
  w.Put(i, 0, i.row->result[0], low, nullptr);
}

// v_dual_cndmask_b32 does not name vcc.
bool DecodeConditional(Decoder& d, const Row& row) {
  if (d.text().operands.size() == 4) return DecodeVector(d, row);
  Row implied = row;
  implied.value |= kReadsVcc;
  return DecodeVector(d, implied);
}

uint32_t FirstLane(const Wave& w) {
  return w.exec() == 0 ? 0 : static_cast<uint32_t>(std::countr_zero(w.exec()));
}

// A lane of a vector register to a scalar one; source 1, if there is one, says which.
void ReadLane(Wave& w, const Instruction& i) {
  const uint32_t lane = i.sources == 2
                            ? static_cast<uint32_t>(w.Scalar(i, i.source[1])) & (w.lanes() - 1)
                            : FirstLane(w);
  const Operand& from = i.source[0];
  if (from.kind != Operand::Kind::kVector) {
    uint64_t undefined = 0;
    const uint64_t value = w.ScalarBits(from, &undefined);
    w.PutScalar(i.result[0], value, undefined);
    return;
  }
  const bool undefined = (w.undefined(from.reg) >> lane & 1) != 0;
  w.PutScalar(i.result[0], w.Vector(from.reg)[lane], undefined ? ~uint32_t{0} : 0);
}

void WriteLane(Wave& w, const Instruction& i) {
  const uint32_t lane = static_cast<uint32_t>(w.Scalar(i, i.source[1])) & (w.lanes() - 1);
  uint64_t undefined = 0;
  const uint64_t value = w.ScalarBits(i.source[0], &undefined);
  const uint32_t to = i.result[0].reg;
  w.Vector(to)[lane] = static_cast<uint32_t>(value);
  const uint64_t bit = uint64_t{1} << lane;
  w.undefined(to) = (w.undefined(to) & ~bit) | (undefined != 0 ? bit : 0);
}

bool DecodeLane(Decoder& d, const Row& row) {
  const size_t sources = row.value;
  if (!d.Expect(1 + sources) || !d.ReadResult(0, Type::kB32)) return false;
  for (size_t k = 0; k < sources; ++k) {
    if (!d.ReadSource(1 + k, Type::kB32)) return false;
  }
  return d.OnlyModifiers("");
}

// Bits of a mask below each lane, counted and added to source 1; of the lower or the upper 32
// lanes.
template <uint32_t base>
void CountBelow(Wave& w, const Instruction& i) {
  alignas(64) Lanes room[2];
  const LaneView mask = w.Fetch(i, 0, Type::kB32, room[0], nullptr);
  const LaneView add = w.Fetch(i, 1, Type::kB32, room[1], nullptr);
  if (w.failed()) return;
  alignas(64) Lanes low;
  for (uint32_t l = 0; l < w.lanes(); ++l) {
    const uint32_t below = l < base ? 0 : l - base;
    const uint32_t bits = below >= 32 ? ~uint32_t{0} : (uint32_t{1} << below) - 1;
    low[l] = static_cast<uint32_t>(std::popcount(mask.low[l] & bits)) + add.low[l];
  }
  w.Put(i, 0, Type::kB32, low, nullptr);
}

template <uint32_t base>
constexpr Row CountRow(std::string_view names) {
  return {.names = names,
          .execute = CountBelow<base>,
          .decode = DecodeVector,
          .result = {Type::kB32, Type::kNone},
          .source = {Type::kB32, Type::kB32}};
}

// Exchanges two registers in active lanes.
void Swap(Wave& w, const Instruction& i) {
  const uint32_t a = i.result[0].reg;
  const uint32_t b = i.source[0].reg;
  const uint64_t mask = w.exec();
  for (uint32_t l = 0; l < w.lanes(); ++l) {
    if ((mask >> l & 1) != 0) std::swap(w.Vector(a)[l], w.Vector(b)[l]);
  }
  const uint64_t differ = (w.undefined(a) ^ w.undefined(b)) & mask;
  w.undefined(a) ^= differ;
  w.undefined(b) ^= differ;
}

bool DecodeSwap(Decoder& d, const Row&) {
  return d.Expect(2) && d.ReadResult(0, Type::kB32) && d.ReadSource(1, Type::kB32) &&
         d.OnlyModifiers("");
}

// Each lane takes the one of its row of 16 (or of the other row of its 32) that 4 bits of two
// scalars say. op_sel 0: also from inactive lanes; op_sel 1: an inactive one gives 0.
template <bool other_row>
void PermuteRow(Wave& w, const Instruction& i) {
  const uint64_t selectors = (w.Scalar(i, i.source[1]) & 0xffffffff) | w.Scalar(i, i.source[2])
                                                                           << 32;
  const Operand& from = i.source[0];
  alignas(64) Lanes low;
  uint64_t passed = 0;
  const bool inactive = (i.op_sel & 1) != 0;
  const bool bound = (i.op_sel & 2) != 0;
  const uint32_t* values = w.Vector(from.reg);
  const uint32_t* old = w.Vector(i.result[0].reg);
  for (uint32_t l = 0; l < w.lanes(); ++l) {
    const uint32_t at = static_cast<uint32_t>(selectors >> (4 * (l & 15)) & 15);
    const uint32_t source = ((l & ~15u) ^ (other_row ? 16u : 0u)) + at;
    const bool ok = inactive || (w.exec() >> source & 1) != 0;
    low[l] = ok ? values[source] : bound ? 0 : old[l];
    const uint64_t undefined = ok      ? w.undefined(from.reg) >> source
                               : bound ? 0
                                       : w.undefined(i.result[0].reg) >> l;
    passed |= (undefined & 1) << l;
  }
  w.set_passed(passed);
  Instruction plain = {};
  plain.row = i.row;
  plain.result = i.result;
  w.Put(plain, 0, Type::kB32, low, nullptr);
}

// The halves of a wave of 64 exchange their lanes.
void PermuteHalves(Wave& w, const Instruction& i) {
  const uint32_t from = i.source[0].reg;
  alignas(64) Lanes low;
  uint64_t passed = 0;
  for (uint32_t l = 0; l < w.lanes(); ++l) {
    const uint32_t source = w.lanes() == 64 ? l ^ 32 : l;
    low[l] = w.Vector(from)[source];
    passed |= (w.undefined(from) >> source & 1) << l;
  }
  w.set_passed(passed);
  w.Put(i, 0, Type::kB32, low, nullptr);
}

bool DecodePermute(Decoder& d, const Row& row) {
  if (!d.Expect(1 + row.value) || !d.ReadResult(0, Type::kB32)) return false;
  for (uint32_t k = 0; k < row.value; ++k) {
    if (!d.ReadSource(1 + k, Type::kB32)) return false;
  }
  if (d.out().source[0].kind != Operand::Kind::kVector)
    return d.Fail("has a source that is no vector");
  const std::vector<int64_t> select = d.text().List("op_sel");
  for (size_t b = 0; b < select.size() && b < 2; ++b) {
    d.out().op_sel |= static_cast<uint8_t>((select[b] & 1) << b);
  }
  return d.OnlyModifiers("op_sel");
}

bool DecodeNothing(Decoder&, const Row&) { return true; }
void Nothing(Wave&, const Instruction&) {}

constexpr Row kLaneRows[] = {
    {.names = "v_cndmask_b32",
     .execute = SelectLanes,
     .decode = DecodeConditional,
     .result = {Type::kF32, Type::kNone},
     .source = {Type::kF32, Type::kF32, Type::kMask},
     .value = kPassesUndefined},
    {.names = "v_cndmask_b16",
     .execute = SelectLanes,
     .decode = DecodeConditional,
     .result = {Type::kF16, Type::kNone},
     .source = {Type::kF16, Type::kF16, Type::kMask},
     .value = kPassesUndefined},
    {.names = "v_readfirstlane_b32", .execute = ReadLane, .decode = DecodeLane, .value = 1},
    {.names = "v_readlane_b32", .execute = ReadLane, .decode = DecodeLane, .value = 2},
    {.names = "v_writelane_b32", .execute = WriteLane, .decode = DecodeLane, .value = 2},
    CountRow<0>("v_mbcnt_lo_u32_b32"),
    CountRow<32>("v_mbcnt_hi_u32_b32"),
    {.names = "v_swap_b32", .execute = Swap, .decode = DecodeSwap},
    {.names = "v_permlane16_b32",
     .execute = PermuteRow<false>,
     .decode = DecodePermute,
     .value = 3},
    {.names = "v_permlanex16_b32",
     .execute = PermuteRow<true>,
     .decode = DecodePermute,
     .value = 3},
    {.names = "v_permlane64_b32", .execute = PermuteHalves, .decode = DecodePermute, .value = 1},
    {.names = "v_nop", .execute = Nothing, .decode = DecodeNothing},
};

}  // namespace

std::span<const Row> LaneRows() { return kLaneRows; }

}  // namespace fakeamd
