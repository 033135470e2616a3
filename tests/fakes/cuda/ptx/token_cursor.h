// A walk over the tokens of a PTX text that keeps the first error.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fakes/cuda/ptx/lexer.h"
#include "tests/fakes/cuda/ptx/module.h"

namespace fakecuda {

// The functions that return bool return false, and stay where they are, if the next token is
// something else; all but Is and Take then set the error.
class TokenCursor {
 public:
  explicit TokenCursor(std::string_view text) : tokens_(Tokenize(text)) {}

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool AtEnd() const { return Peek().kind == Token::Kind::kEnd; }
  bool Is(std::string_view text) const { return Peek().text == text && !AtEnd(); }
  void Skip() { ++at_; }
  bool Take(std::string_view text);
  bool Expect(std::string_view text);
  bool Word(std::string* out);
  bool Unsigned(uint64_t* out);
  // PTX ISA, "Constants": decimal, 0x, 0 octal and 0b integers with an optional U; 0f and 0d
  // floats.
  bool Number(Operand* out);

  bool Fail(const std::string& what);  // false
  const std::string& error() const { return error_; }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::string error_;
};

}  // namespace fakecuda
