// Vector arithmetic: results, sources by the row's types, and the modifiers of the encodings VOP3,
// VOP3P, DPP and SDWA.
#include "tests/fakes/amd/decoder.h"

namespace fakeamd {
namespace {

constexpr std::string_view kVectorModifiers =
    "clamp mul div op_sel op_sel_hi neg_lo neg_hi quad_perm row_shl row_shr row_ror row_mirror "
    "row_half_mirror wave_shl wave_shr wave_rol wave_ror row_bcast row_share row_xmask "
    "row_newbcast dpp8 "
    "row_mask bank_mask bound_ctrl fi dst_sel dst_unused src0_sel src1_sel";

bool DecodePart(Decoder& d, const std::string& name, uint8_t* select) {
  static constexpr std::string_view kSelects[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                                  "WORD_0", "WORD_1", "DWORD"};
  const auto it = d.text().modifiers.find(name);
  if (it == d.text().modifiers.end()) return true;
  for (uint8_t i = 0; i < 7; ++i) {
    if (kSelects[i] != it->second) continue;
    *select = i;
    return true;
  }
  return d.Fail("its " + name + " is not supported");
}

bool DecodeParts(Decoder& d) {
  Instruction& out = d.out();
  if (!DecodePart(d, "dst_sel", &out.result_select) ||
      !DecodePart(d, "src0_sel", &out.source[0].select) ||
      !DecodePart(d, "src1_sel", &out.source[1].select)) {
    return false;
  }
  const auto unused = d.text().modifiers.find("dst_unused");
  if (unused == d.text().modifiers.end()) return true;
  out.result_unused = unused->second == "UNUSED_PAD" ? 0 : unused->second == "UNUSED_SEXT" ? 1 : 2;
  return true;
}

bool DecodeLaneMove(Decoder& d) {
  using Kind = LaneMove::Kind;
  struct Form {
    const char* name;
    Kind kind;
  };
  static constexpr Form kForms[] = {
      {"quad_perm", Kind::kQuad},       {"row_shl", Kind::kRowShl},
      {"row_shr", Kind::kRowShr},       {"row_ror", Kind::kRowRor},
      {"row_mirror", Kind::kRowMirror}, {"row_half_mirror", Kind::kRowHalfMirror},
      {"wave_shl", Kind::kWaveShl},     {"wave_shr", Kind::kWaveShr},
      {"wave_rol", Kind::kWaveRol},     {"wave_ror", Kind::kWaveRor},
      {"row_bcast", Kind::kRowBcast15}, {"row_share", Kind::kRowShare},
      {"row_xmask", Kind::kRowXmask},   {"row_newbcast", Kind::kRowNewBcast},
      {"dpp8", Kind::kEight},
  };
  LaneMove& move = d.out().move;
  for (const Form& form : kForms) {
    if (!d.text().Has(form.name)) continue;
    move.kind = form.kind;
    if (form.kind == Kind::kQuad || form.kind == Kind::kEight) {
      const std::vector<int64_t> list = d.text().List(form.name);
      if (list.size() != (form.kind == Kind::kQuad ? 4 : 8)) return d.Fail("its lanes are unclear");
      for (size_t i = 0; i < list.size(); ++i) move.value[i] = static_cast<uint8_t>(list[i]);
    } else if (!d.text().modifiers.at(form.name).empty()) {
      const auto number = d.text().Number(form.name, 0);
      if (!number) return d.Fail("its lanes are unclear");
      move.value[0] = static_cast<uint8_t>(*number);
      if (form.kind == Kind::kRowBcast15 && *number == 31) move.kind = Kind::kRowBcast31;
    }
  }
  if (move.kind == Kind::kNone) return true;
  move.row_mask = static_cast<uint8_t>(d.text().Number("row_mask", 15).value_or(15));
  move.bank_mask = static_cast<uint8_t>(d.text().Number("bank_mask", 15).value_or(15));
  // LLVM prints bound_ctrl:1 (before: bound_ctrl:0) when the bit is set.
  move.bound_zero = d.text().Has("bound_ctrl");
  move.fetch_inactive = d.text().Number("fi", 0) == 1;
  return true;
}

uint8_t ListBits(const std::vector<int64_t>& list, uint8_t otherwise) {
  if (list.empty()) return otherwise;
  uint8_t bits = 0;
  for (size_t i = 0; i < list.size() && i < 4; ++i)
    bits |= static_cast<uint8_t>((list[i] & 1) << i);
  // The result's bit is the last one, also with fewer sources than three.
  return bits;
}

bool DecodeModifiers(Decoder& d, const Row& row) {
  Instruction& out = d.out();
  if (!d.OnlyModifiers(kVectorModifiers)) return false;
  const Text& text = d.text();
  out.clamp = text.Has("clamp");
  if (text.Has("mul")) out.scale = text.Number("mul", 0) == 2 ? 1 : 2;
  if (text.Has("div")) out.scale = 3;
  const std::vector<int64_t> select = text.List("op_sel");
  out.op_sel = ListBits(select, 0);
  // Without a source's bit for each of three, the last bit of the list is the result's.
  if (!select.empty() && select.size() == static_cast<size_t>(out.sources) + 1) {
    out.op_sel = static_cast<uint8_t>(out.op_sel & ((1u << out.sources) - 1));
    if (select.back() == 1) out.op_sel |= 8;
  }
  // Where the text says nothing, a packed operand has its upper half above, and a mixed one is a
  // float.
  out.op_sel_hi = ListBits(text.List("op_sel_hi"), row.source[0] == Type::kMix ? 0 : 7);
  out.negate_low = ListBits(text.List("neg_lo"), 0);
  out.negate_high = ListBits(text.List("neg_hi"), 0);
  return DecodeParts(d) && DecodeLaneMove(d);
}

}  // namespace

bool DecodeVector(Decoder& d, const Row& row) {
  Instruction& out = d.out();
  size_t results = row.result[1] != Type::kNone ? 2 : 1;
  size_t sources = 0;
  while (sources < row.source.size() && row.source[sources] != Type::kNone) ++sources;
  const size_t named = sources - ((row.value & (kAccumulates | kReadsVcc)) != 0 ? 1 : 0);
  // v_cmpx has no result but the mask of active lanes since gfx10.
  if ((row.value & kComparesExec) != 0 && d.text().operands.size() == named) results = 0;
  if (!d.Expect(results + named)) return false;
  for (size_t i = 0; i < results; ++i) {
    if (!d.ReadResult(i, row.result[i])) return false;
  }
  for (size_t i = 0; i < named; ++i) {
    if (!d.ReadSource(results + i, row.source[i])) return false;
  }
  if ((row.value & kAccumulates) != 0) {
    Operand& last = out.source[out.sources++];
    last = out.result[0];
  }
  if ((row.value & kReadsVcc) != 0) {
    Operand& last = out.source[out.sources++];
    last.kind = Operand::Kind::kScalar;
    last.reg = kVcc;
    last.words = static_cast<uint8_t>(d.lanes() / 32);
  }
  if (!DecodeModifiers(d, row)) return false;
  for (size_t k = 0; k < out.sources; ++k) {
    // The signs of a mixed operand apply to the half or the float that it is.
    if (row.source[k] != Type::kMix) continue;
    if (out.source[k].negate) out.negate_low |= static_cast<uint8_t>(1u << k);
    if (out.source[k].absolute) out.negate_high |= static_cast<uint8_t>(1u << k);
    out.source[k].negate = out.source[k].absolute = false;
  }
  const Type type = row.result[0];
  const bool floating = type == Type::kF16 || type == Type::kF32 || type == Type::kF64 ||
                        type == Type::kPairF16 || type == Type::kPairF32 || type == Type::kMix;
  if (out.clamp && !floating && (row.value & kSaturates) == 0)
    return d.Fail("clamp is not supported");
  if (out.scale != 0 && !floating) return d.Fail("mul and div are not supported");
  return true;
}

}  // namespace fakeamd
