// Scalar instructions that work bit by bit, or copy: undefined bits of their operands make those
// bits of the result undefined on which they have an influence. LLVM builds masks of lanes with
// these from registers of which only some bits were written.
#include "tests/fakes/amd/scalar.h"

namespace fakeamd {
namespace {

struct Bits {
  uint64_t value = 0;
  uint64_t undefined = 0;
};

Bits Read(Wave& w, const Operand& operand) {
  Bits bits;
  bits.value = w.ScalarBits(operand, &bits.undefined);
  return bits;
}

uint64_t WidthMask(const Operand& operand) {
  return operand.words == 2 ? ~uint64_t{0} : 0xffffffff;
}

// A function of single bits: those of the result that differ when undefined bits do are undefined.
template <auto F>
Bits Bitwise(Bits a, Bits b) {
  const uint64_t a0 = a.value & ~a.undefined;
  const uint64_t a1 = a.value | a.undefined;
  const uint64_t b0 = b.value & ~b.undefined;
  const uint64_t b1 = b.value | b.undefined;
  const uint64_t all[] = {F(a0, b0), F(a0, b1), F(a1, b0), F(a1, b1)};
  return {all[0], (all[0] ^ all[1]) | (all[0] ^ all[2]) | (all[0] ^ all[3])};
}

void PutWithScc(Wave& w, const Operand& to, Bits bits) {
  bits.value &= WidthMask(to);
  bits.undefined &= WidthMask(to);
  w.PutScalar(to, bits.value, bits.undefined);
  const bool sure = (bits.value & ~bits.undefined) != 0;
  w.PutScc(sure, sure || bits.undefined == 0);
}

template <auto F>
void Logic(Wave& w, const Instruction& i) {
  const Bits a = Read(w, i.source[0]);
  const Bits b = i.sources > 1 ? Read(w, i.source[1]) : Bits{};
  PutWithScc(w, i.result[0], Bitwise<F>(a, b));
}

Operand ExecOperand(const Wave& w) {
  Operand exec;
  exec.kind = Operand::Kind::kScalar;
  exec.reg = kExec;
  exec.words = static_cast<uint8_t>(w.lanes() / 32);
  return exec;
}

// The result takes the old mask of lanes (or, with `new_mask`, the new one); the new one is
// F(source, old).
template <auto F, bool new_mask>
void SaveExec(Wave& w, const Instruction& i) {
  const Operand exec = ExecOperand(w);
  const Bits old = Read(w, exec);
  const Bits source = Read(w, i.source[0]);
  Bits result = Bitwise<F>(source, old);
  PutWithScc(w, exec, result);
  if (new_mask) {
    w.PutScalar(i.result[0], result.value & WidthMask(exec), result.undefined & WidthMask(exec));
  } else {
    w.PutScalar(i.result[0], old.value, old.undefined);
  }
}

// With a constant of 16 bits, which is signed.
constexpr uint32_t kShortConstant = 1;

void Copy(Wave& w, const Instruction& i) {
  Bits a = Read(w, i.source[0]);
  if (i.row->value == kShortConstant) {
    a.value = static_cast<uint32_t>(int32_t{static_cast<int16_t>(a.value)});
  }
  w.PutScalar(i.result[0], a.value, a.undefined);
}

void ConditionalCopy(Wave& w, const Instruction& i) {
  if (w.Scc(i)) Copy(w, i);
}

void SelectScalar(Wave& w, const Instruction& i) {
  const Bits a = Read(w, i.source[w.Scc(i) ? 0 : 1]);
  w.PutScalar(i.result[0], a.value, a.undefined);
}

// One bit, whose number is the source, set or cleared.
template <bool set>
void PutBit(Wave& w, const Instruction& i) {
  const Operand& to = i.result[0];
  Bits old = Read(w, to);
  const uint64_t bit = uint64_t{1} << (w.Scalar(i, i.source[0]) & (to.words == 2 ? 63 : 31));
  old.undefined &= ~bit;
  w.PutScalar(to, set ? old.value | bit : old.value & ~bit, old.undefined);
}

constexpr auto kAnd = [](u64 a, u64 b) { return a & b; };
constexpr auto kOr = [](u64 a, u64 b) { return a | b; };
constexpr auto kXor = [](u64 a, u64 b) { return a ^ b; };
constexpr auto kAndNot = [](u64 a, u64 b) { return a & ~b; };
constexpr auto kNotAnd = [](u64 a, u64 b) { return ~a & b; };
constexpr auto kOrNot = [](u64 a, u64 b) { return a | ~b; };
constexpr auto kNotOr = [](u64 a, u64 b) { return ~a | b; };
constexpr auto kNand = [](u64 a, u64 b) { return ~(a & b); };
constexpr auto kNor = [](u64 a, u64 b) { return ~(a | b); };
constexpr auto kXnor = [](u64 a, u64 b) { return ~(a ^ b); };
constexpr auto kNot = [](u64 a, u64) { return ~a; };

constexpr Row MaskRow(std::string_view names, Execute execute, Type type, int sources) {
  Row row = {.names = names, .execute = execute, .decode = DecodeScalar};
  row.result[0] = type;
  for (int k = 0; k < sources; ++k) row.source[static_cast<size_t>(k)] = type;
  return row;
}

constexpr Type k32 = Type::kB32;
constexpr Type k64 = Type::kB64;

constexpr Row BitRow(std::string_view names, Execute execute, Type type) {
  Row row = MaskRow(names, execute, type, 1);
  row.source[0] = k32;
  return row;
}

constexpr Row ShortRow(std::string_view names, Execute execute) {
  Row row = MaskRow(names, execute, k32, 1);
  row.value = kShortConstant;
  return row;
}

constexpr Row kMaskRows[] = {
    MaskRow("s_and_b32", Logic<kAnd>, k32, 2),
    MaskRow("s_and_b64", Logic<kAnd>, k64, 2),
    MaskRow("s_or_b32", Logic<kOr>, k32, 2),
    MaskRow("s_or_b64", Logic<kOr>, k64, 2),
    MaskRow("s_xor_b32", Logic<kXor>, k32, 2),
    MaskRow("s_xor_b64", Logic<kXor>, k64, 2),
    MaskRow("s_andn2_b32|s_and_not1_b32", Logic<kAndNot>, k32, 2),
    MaskRow("s_andn2_b64|s_and_not1_b64", Logic<kAndNot>, k64, 2),
    MaskRow("s_orn2_b32|s_or_not1_b32", Logic<kOrNot>, k32, 2),
    MaskRow("s_orn2_b64|s_or_not1_b64", Logic<kOrNot>, k64, 2),
    MaskRow("s_nand_b32", Logic<kNand>, k32, 2),
    MaskRow("s_nand_b64", Logic<kNand>, k64, 2),
    MaskRow("s_nor_b32", Logic<kNor>, k32, 2),
    MaskRow("s_nor_b64", Logic<kNor>, k64, 2),
    MaskRow("s_xnor_b32", Logic<kXnor>, k32, 2),
    MaskRow("s_xnor_b64", Logic<kXnor>, k64, 2),
    MaskRow("s_not_b32", Logic<kNot>, k32, 1),
    MaskRow("s_not_b64", Logic<kNot>, k64, 1),
    MaskRow("s_and_saveexec_b32", SaveExec<kAnd, false>, k32, 1),
    MaskRow("s_and_saveexec_b64", SaveExec<kAnd, false>, k64, 1),
    MaskRow("s_or_saveexec_b32", SaveExec<kOr, false>, k32, 1),
    MaskRow("s_or_saveexec_b64", SaveExec<kOr, false>, k64, 1),
    MaskRow("s_xor_saveexec_b32", SaveExec<kXor, false>, k32, 1),
    MaskRow("s_xor_saveexec_b64", SaveExec<kXor, false>, k64, 1),
    MaskRow("s_andn2_saveexec_b32|s_and_not1_saveexec_b32", SaveExec<kAndNot, false>, k32, 1),
    MaskRow("s_andn2_saveexec_b64|s_and_not1_saveexec_b64", SaveExec<kAndNot, false>, k64, 1),
    MaskRow("s_andn1_saveexec_b32|s_and_not0_saveexec_b32", SaveExec<kNotAnd, false>, k32, 1),
    MaskRow("s_andn1_saveexec_b64|s_and_not0_saveexec_b64", SaveExec<kNotAnd, false>, k64, 1),
    MaskRow("s_orn2_saveexec_b32|s_or_not1_saveexec_b32", SaveExec<kOrNot, false>, k32, 1),
    MaskRow("s_orn2_saveexec_b64|s_or_not1_saveexec_b64", SaveExec<kOrNot, false>, k64, 1),
    MaskRow("s_orn1_saveexec_b32|s_or_not0_saveexec_b32", SaveExec<kNotOr, false>, k32, 1),
    MaskRow("s_orn1_saveexec_b64|s_or_not0_saveexec_b64", SaveExec<kNotOr, false>, k64, 1),
    MaskRow("s_andn1_wrexec_b32|s_and_not0_wrexec_b32", SaveExec<kNotAnd, true>, k32, 1),
    MaskRow("s_andn1_wrexec_b64|s_and_not0_wrexec_b64", SaveExec<kNotAnd, true>, k64, 1),
    MaskRow("s_andn2_wrexec_b32|s_and_not1_wrexec_b32", SaveExec<kAndNot, true>, k32, 1),
    MaskRow("s_andn2_wrexec_b64|s_and_not1_wrexec_b64", SaveExec<kAndNot, true>, k64, 1),
    MaskRow("s_mov_b32", Copy, k32, 1),
    MaskRow("s_mov_b64", Copy, k64, 1),
    ShortRow("s_movk_i32", Copy),
    ShortRow("s_cmovk_i32", ConditionalCopy),
    MaskRow("s_cmov_b32", ConditionalCopy, k32, 1),
    MaskRow("s_cmov_b64", ConditionalCopy, k64, 1),
    MaskRow("s_cselect_b32", SelectScalar, k32, 2),
    MaskRow("s_cselect_b64", SelectScalar, k64, 2),
    BitRow("s_bitset1_b32", PutBit<true>, k32),
    BitRow("s_bitset1_b64", PutBit<true>, k64),
    BitRow("s_bitset0_b32", PutBit<false>, k32),
    BitRow("s_bitset0_b64", PutBit<false>, k64),
};

}  // namespace

std::span<const Row> MaskRows() { return kMaskRows; }

}  // namespace fakeamd
