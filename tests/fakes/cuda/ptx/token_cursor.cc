// Takes tokens that are as expected, and reads PTX's forms of numbers: floats by their bits (0f,
// 0d), binary, octal, hexadecimal and decimal integers.
#include "tests/fakes/cuda/ptx/token_cursor.h"

#include <cstdlib>

namespace fakecuda {

bool TokenCursor::Take(std::string_view text) {
  if (!Is(text) || Peek().kind == Token::Kind::kString) return false;
  Skip();
  return true;
}

bool TokenCursor::Fail(const std::string& what) {
  if (error_.empty()) error_ = "line " + std::to_string(Peek().line) + ": " + what;
  return false;
}

bool TokenCursor::Expect(std::string_view text) {
  return Take(text) || Fail("expected '" + std::string(text) + "', found '" + Peek().text + "'");
}

bool TokenCursor::Word(std::string* out) {
  if (Peek().kind != Token::Kind::kWord) return Fail("expected a name, found " + Peek().text);
  *out = Peek().text;
  Skip();
  return true;
}

bool TokenCursor::Unsigned(uint64_t* out) {
  Operand number;
  if (!Number(&number) || number.float_bits != 0) return Fail("expected an integer");
  *out = number.bits;
  return true;
}

bool TokenCursor::Number(Operand* out) {
  const bool minus = Take("-");
  if (Peek().kind != Token::Kind::kWord) return Fail("expected a number");
  const std::string& word = Peek().text;
  out->kind = Operand::Kind::kNumber;
  const std::string prefix = word.substr(0, 2);
  char* end = nullptr;
  if (prefix == "0f" || prefix == "0F" || prefix == "0d" || prefix == "0D") {
    out->float_bits = prefix[1] == 'f' || prefix[1] == 'F' ? 32 : 64;
    if (word.size() != 2 + static_cast<size_t>(out->float_bits) / 4) {
      return Fail("a float of the wrong length: " + word);
    }
    out->bits = std::strtoull(word.c_str() + 2, &end, 16);
    if (minus) out->bits ^= uint64_t{1} << (out->float_bits - 1);
  } else if (prefix == "0b" || prefix == "0B") {
    out->bits = std::strtoull(word.c_str() + 2, &end, 2);
  } else {
    out->bits = std::strtoull(word.c_str(), &end, 0);
  }
  if (out->float_bits == 0) {
    if (*end == 'U') ++end;
    if (minus) out->bits = ~out->bits + 1;
  }
  if (*end != 0) return Fail("not a number: " + word);
  Skip();
  return true;
}

}  // namespace fakecuda
