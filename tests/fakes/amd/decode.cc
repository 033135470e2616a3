// The text of an instruction to what the interpreter runs. Suffixes of encodings are left off; the
// two halves of a dual instruction become two, in an order in which neither sees the other's
// result.
#include <algorithm>

#include "tests/fakes/amd/decoder.h"
#include "tests/fakes/amd/row.h"

namespace fakeamd {
namespace {

std::string_view WithoutEncoding(std::string_view mnemonic) {
  for (const std::string_view suffix : {"_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa", "_dpp8"}) {
    if (mnemonic.ends_with(suffix)) return mnemonic.substr(0, mnemonic.size() - suffix.size());
  }
  return mnemonic;
}

void ListTouched(Instruction* out) {
  const auto add = [&](const Operand& operand, bool written) {
    const bool scalar = operand.kind == Operand::Kind::kScalar;
    if (!scalar && operand.kind != Operand::Kind::kVector) return;
    if (scalar && operand.reg >= kNull) return;
    out->touched.push_back(
        {.first = operand.reg, .words = operand.words, .scalar = scalar, .written = written});
  };
  for (size_t k = 0; k < out->sources; ++k) add(out->source[k], false);
  for (size_t k = 0; k < out->results; ++k) add(out->result[k], true);
}

std::string DecodeOne(const Target& target, uint32_t lanes, const Text& text, std::string_view name,
                      Instruction* out) {
  const Row* row = FindRow(name);
  if (row == nullptr) return "the instruction is not supported";
  out->row = row;
  out->execute = row->execute;
  Decoder decoder(target, lanes, text, out);
  if (!row->decode(decoder, *row)) return decoder.error();
  ListTouched(out);
  return "";
}

bool Reads(const Instruction& reader, const Instruction& writer) {
  const uint16_t result = writer.result[0].reg;
  return std::any_of(
      reader.source.begin(), reader.source.begin() + reader.sources,
      [&](const Operand& o) { return o.kind == Operand::Kind::kVector && o.reg == result; });
}

// Both halves read their operands before either writes: where each reads what the other writes, the
// first result waits in a register that no code can name.
std::string OrderDual(Instruction x, Instruction y, std::vector<Instruction>* out) {
  if (!Reads(y, x)) {
    *out = {std::move(x), std::move(y)};
    return "";
  }
  if (!Reads(x, y)) {
    *out = {std::move(y), std::move(x)};
    return "";
  }
  Instruction move;
  move.row = FindRow("v_mov_b32");
  move.execute = move.row->execute;
  move.results = move.sources = 1;
  move.result[0] = x.result[0];
  x.result[0].reg = kStaged;
  move.source[0] = x.result[0];
  *out = {std::move(x), std::move(y), std::move(move)};
  return "";
}

}  // namespace

bool DecodeScalar(Decoder& d, const Row& row) {
  size_t at = 0;
  if (row.result[0] != Type::kNone && !d.ReadResult(at++, row.result[0])) return false;
  for (size_t k = 0; k < row.source.size() && row.source[k] != Type::kNone; ++k) {
    if (!d.ReadSource(at++, row.source[k])) return false;
  }
  return d.Expect(at) && d.OnlyModifiers("");
}

std::string DecodeText(const Target& target, uint32_t lanes, std::string_view text,
                       std::vector<Instruction>* out) {
  constexpr std::string_view kDual = "v_dual_";
  const size_t middle = text.find(" :: ");
  if (middle == std::string_view::npos) {
    const Text parsed = ParseText(text);
    out->resize(1);
    return DecodeOne(target, lanes, parsed, WithoutEncoding(parsed.mnemonic), &out->front());
  }
  Instruction halves[2];
  const std::string_view parts[] = {text.substr(0, middle), text.substr(middle + 4)};
  for (int h = 0; h < 2; ++h) {
    const Text parsed = ParseText(parts[h]);
    if (!parsed.mnemonic.starts_with(kDual)) return "half of the dual instruction is not supported";
    const std::string name = "v_" + parsed.mnemonic.substr(kDual.size());
    const std::string error = DecodeOne(target, lanes, parsed, name, &halves[h]);
    if (!error.empty()) return error;
  }
  return OrderDual(std::move(halves[0]), std::move(halves[1]), out);
}

}  // namespace fakeamd
