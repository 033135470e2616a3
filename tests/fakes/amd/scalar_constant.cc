// Scalar instructions with a constant of 16 bits in their encoding (SOPK): sums and products into a
// register, comparisons. The constant is signed, except in comparisons of unsigned numbers.
#include "tests/fakes/amd/scalar.h"

namespace fakeamd {
namespace {

int32_t Signed16(uint32_t x) { return static_cast<int16_t>(x); }

// s_addk_i32 and s_mulk_i32: the register is a source too.
bool DecodeInto(Decoder& d, const Row&) {
  if (!d.Expect(2) || !d.ReadResult(0, Type::kB32) || !d.ReadSource(0, Type::kB32) ||
      !d.ReadSource(1, Type::kB32)) {
    return false;
  }
  return d.OnlyModifiers("");
}

void AddInto(Wave& w, const Instruction& i) {
  const auto a = static_cast<int32_t>(w.Scalar(i, i.source[0]));
  const int64_t sum = int64_t{a} + Signed16(static_cast<uint32_t>(w.Scalar(i, i.source[1])));
  w.PutScalar(i.result[0], static_cast<uint32_t>(sum));
  w.PutScc(sum != static_cast<int32_t>(static_cast<uint32_t>(sum)));
}

void MultiplyInto(Wave& w, const Instruction& i) {
  const auto a = static_cast<int32_t>(w.Scalar(i, i.source[0]));
  const int64_t product = int64_t{a} * Signed16(static_cast<uint32_t>(w.Scalar(i, i.source[1])));
  w.PutScalar(i.result[0], static_cast<uint32_t>(product));
}

constexpr Row kConstantRows[] = {
    {.names = "s_addk_i32|s_addk_co_i32", .execute = AddInto, .decode = DecodeInto},
    {.names = "s_mulk_i32", .execute = MultiplyInto, .decode = DecodeInto},
    ScalarRow<[](i32 a, u32 b) { return Scc{a == Signed16(b)}; }>("s_cmpk_eq_i32"),
    ScalarRow<[](i32 a, u32 b) { return Scc{a != Signed16(b)}; }>("s_cmpk_lg_i32"),
    ScalarRow<[](i32 a, u32 b) { return Scc{(a > Signed16(b))}; }>("s_cmpk_gt_i32"),
    ScalarRow<[](i32 a, u32 b) { return Scc{(a >= Signed16(b))}; }>("s_cmpk_ge_i32"),
    ScalarRow<[](i32 a, u32 b) { return Scc{a < Signed16(b)}; }>("s_cmpk_lt_i32"),
    ScalarRow<[](i32 a, u32 b) { return Scc{a <= Signed16(b)}; }>("s_cmpk_le_i32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{a == (b & 0xffff)}; }>("s_cmpk_eq_u32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{a != (b & 0xffff)}; }>("s_cmpk_lg_u32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{(a > (b & 0xffff))}; }>("s_cmpk_gt_u32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{(a >= (b & 0xffff))}; }>("s_cmpk_ge_u32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{a < (b & 0xffff)}; }>("s_cmpk_lt_u32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{a <= (b & 0xffff)}; }>("s_cmpk_le_u32"),
};

}  // namespace

std::span<const Row> ScalarConstantRows() { return kConstantRows; }

}  // namespace fakeamd
