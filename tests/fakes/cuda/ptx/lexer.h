// PTX text as tokens: words (opcodes with their dots, directives, names, numbers), strings and
// single punctuation characters, each with its line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fakecuda {

struct Token {
  enum class Kind { kWord, kString, kPunctuation, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 0;
};

// Ends with a token of kEnd. Characters that PTX does not have become punctuation, which no rule of
// the parser accepts.
std::vector<Token> Tokenize(std::string_view text);

}  // namespace fakecuda
