// Reads operands by name (registers, named scalars, constants), checks how many there are, and
// accepts only the modifiers that an instruction has.
#include "tests/fakes/amd/decoder.h"

#include <bit>
#include <cctype>
#include <cstdlib>

#include "tests/fakes/amd/half.h"

namespace fakeamd {
namespace {

struct NamedScalar {
  std::string_view name;
  uint16_t reg;
  uint8_t words;
};

constexpr NamedScalar kNamedScalars[] = {
    {"vcc", kVcc, 2},
    {"vcc_lo", kVcc, 1},
    {"vcc_hi", kVcc + 1, 1},
    {"exec", kExec, 2},
    {"exec_lo", kExec, 1},
    {"exec_hi", kExec + 1, 1},
    {"m0", kM0, 1},
    {"flat_scratch", kFlatScratch, 2},
    {"flat_scratch_lo", kFlatScratch, 1},
    {"flat_scratch_hi", kFlatScratch + 1, 1},
    {"src_flat_scratch_base_lo", kFlatScratch, 1},
    {"src_flat_scratch_base_hi", kFlatScratch + 1, 1},
    {"src_shared_base", kSharedBase, 2},
    {"src_shared_limit", kSharedLimit, 2},
    {"src_private_base", kPrivateBase, 2},
    {"src_private_limit", kPrivateLimit, 2},
    {"src_scc", kScc, 1},
    {"scc", kScc, 1},
};

// v7, v[4:5], ttmp9: the prefix, then one number or a range of them.
bool Numbered(std::string_view name, std::string_view prefix, uint32_t* first, uint32_t* words) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  if (name.starts_with('[') && name.ends_with(']')) {
    name = name.substr(1, name.size() - 2);
    const size_t colon = name.find(':');
    const auto from = ParseInteger(name.substr(0, colon));
    const auto to = colon == std::string_view::npos ? from : ParseInteger(name.substr(colon + 1));
    if (!from || !to || *from < 0 || *to < *from || *to > 255) return false;
    *first = static_cast<uint32_t>(*from);
    *words = static_cast<uint32_t>(*to - *from + 1);
    return true;
  }
  const auto number = ParseInteger(name);
  if (!number || *number < 0 || *number > 255) return false;
  *first = static_cast<uint32_t>(*number);
  *words = 1;
  return true;
}

}  // namespace

bool Decoder::Fail(const std::string& what) {
  if (error_.empty()) error_ = what;
  return false;
}

bool Decoder::Expect(size_t operands) {
  return text_.operands.size() == operands ||
         Fail("has " + std::to_string(text_.operands.size()) + " operands instead of " +
              std::to_string(operands));
}

bool Decoder::OnlyModifiers(std::string_view known) {
  for (const auto& [name, value] : text_.modifiers) {
    bool found = false;
    for (size_t at = 0; at < known.size() && !found;) {
      const size_t end = std::min(known.find(' ', at), known.size());
      found = known.substr(at, end - at) == name;
      at = end + 1;
    }
    if (!found) return Fail("its modifier " + name + " is not supported");
  }
  return true;
}

bool Decoder::ReadOffset(const std::string& name, int32_t* to) {
  const auto number = text_.Number(name, 0);
  if (!number) return Fail(name + " is not a number");
  *to = static_cast<int32_t>(*number);
  return true;
}

bool Decoder::Register(std::string_view name, Operand* operand, uint32_t* words) {
  uint32_t first = 0;
  for (const NamedScalar& scalar : kNamedScalars) {
    if (scalar.name != name) continue;
    operand->kind = Operand::Kind::kScalar;
    operand->reg = scalar.reg;
    *words = scalar.words;
    return true;
  }
  if (name == "null") {
    operand->kind = Operand::Kind::kScalar;
    operand->reg = kNull;
    *words = 0;  // as many as it takes
    return true;
  }
  operand->high = name.ends_with(".h");
  if (operand->high || name.ends_with(".l")) name.remove_suffix(2);
  if (Numbered(name, "ttmp", &first, words)) {
    operand->kind = Operand::Kind::kScalar;
    operand->reg = static_cast<uint16_t>(kTrap + first);
    return first + *words <= 16;
  }
  if (Numbered(name, "s", &first, words)) {
    operand->kind = Operand::Kind::kScalar;
    operand->reg = static_cast<uint16_t>(first);
    return first + *words <= kScalarLimit;
  }
  if (Numbered(name, "v", &first, words)) {
    operand->kind = Operand::Kind::kVector;
    operand->reg = static_cast<uint16_t>(first);
    return true;
  }
  if (Numbered(name, "a", &first, words)) {
    operand->kind = Operand::Kind::kVector;
    operand->reg = static_cast<uint16_t>(kAccumulators + first);
    return true;
  }
  return false;
}

// LLVM prints an integer or, for encodings of floats, a decimal fraction; the type of the operand
// says which bits that is (ISA documents, "Inline constants": integers are the same bits in all
// types).
bool Decoder::Constant(std::string_view text, Type type, uint32_t words, Operand* operand) {
  operand->kind = Operand::Kind::kConstant;
  operand->words = static_cast<uint8_t>(words);
  const bool wide =
      type == Type::kNone ? words == 2 : TypeWords(type) == 2 && type != Type::kPairF32;
  if (const auto integer = ParseInteger(text)) {
    auto bits = static_cast<uint64_t>(*integer);
    // A literal is the upper half of a double.
    if (type == Type::kF64 && text.starts_with("0x")) bits <<= 32;
    operand->constant = wide ? bits : bits & 0xffffffff;
    return true;
  }
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size() || copy.find('.') == std::string::npos) return false;
  switch (type) {
    case Type::kB16:
    case Type::kI16:
    case Type::kF16:
    case Type::kPair16:
    case Type::kPairF16:
      operand->constant = ToHalf(value).bits;
      break;
    case Type::kBF16:
      operand->constant = ToBrain(value).bits;
      break;
    default:
      operand->constant = wide ? std::bit_cast<uint64_t>(value)
                               : std::bit_cast<uint32_t>(static_cast<float>(value));
  }
  return true;
}

bool Decoder::Read(std::string_view text, Type type, uint32_t words, Operand* operand) {
  const std::string original(text);
  if (type == Type::kMask) words = lanes_ / 32;
  if (words == 0) words = TypeWords(type);
  if (text == "off") {
    operand->kind = Operand::Kind::kOff;
    return true;
  }
  const auto unwrap = [&](std::string_view open, std::string_view close) {
    if (!text.starts_with(open) || !text.ends_with(close)) return false;
    text = text.substr(open.size(), text.size() - open.size() - close.size());
    return true;
  };
  if (unwrap("sext(", ")")) operand->extend = true;
  if (unwrap("neg(", ")")) operand->negate = true;
  if (text.size() > 1 && text[0] == '-' && (text[1] == '|' || std::isalpha(text[1]) != 0)) {
    operand->negate = true;
    text.remove_prefix(1);
  }
  if (unwrap("|", "|") || unwrap("abs(", ")")) operand->absolute = true;
  uint32_t found = 0;
  if (Register(text, operand, &found)) {
    if (found != 0 && found != words) {
      return Fail(original + " has " + std::to_string(found) + " registers instead of " +
                  std::to_string(words));
    }
    operand->words = static_cast<uint8_t>(words);
    const uint32_t limit = operand->kind == Operand::Kind::kScalar ? uint32_t{kScalars}
                           : operand->reg < kAccumulators          ? kAccumulators
                                                                   : kStaged;
    return operand->reg + words <= limit || Fail(original + " is not a register");
  }
  return Constant(text, type, words, operand) ||
         Fail(original + " is no operand that is supported");
}

bool Decoder::ReadSource(size_t at, Type type, uint32_t words) {
  if (at >= text_.operands.size()) return Fail("lacks an operand");
  if (out_.sources == out_.source.size()) return Fail("has too many operands");
  return Read(text_.operands[at], type, words, &out_.source[out_.sources++]);
}

bool Decoder::ReadResult(size_t at, Type type, uint32_t words) {
  if (at >= text_.operands.size()) return Fail("lacks an operand");
  Operand& result = out_.result[out_.results++];
  return Read(text_.operands[at], type, words, &result) &&
         (result.kind == Operand::Kind::kVector || result.kind == Operand::Kind::kScalar ||
          Fail("has a result that is no register"));
}

}  // namespace fakeamd
