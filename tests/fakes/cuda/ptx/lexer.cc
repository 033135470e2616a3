// Splits PTX text into tokens and leaves out blanks and comments.
#include "tests/fakes/cuda/ptx/lexer.h"

#include <cctype>

namespace fakecuda {
namespace {

bool InWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

}  // namespace

std::vector<Token> Tokenize(std::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
    } else if (text.substr(i, 2) == "//") {
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (text.substr(i, 2) == "/*") {
      const size_t end = text.find("*/", i + 2);
      const size_t stop = end == std::string_view::npos ? text.size() : end + 2;
      for (; i < stop; ++i) line += text[i] == '\n' ? 1 : 0;
    } else if (c == '"') {
      const size_t end = text.find('"', i + 1);
      const size_t stop = end == std::string_view::npos ? text.size() : end;
      tokens.push_back({Token::Kind::kString, std::string(text.substr(i + 1, stop - i - 1)), line});
      i = stop + 1;
    } else if (InWord(c)) {
      const size_t begin = i;
      // A modifier may have two parts: .shared::cta. A label has one colon.
      while (i < text.size() && (InWord(text[i]) || text.substr(i, 2) == "::")) {
        i += text[i] == ':' ? 2 : 1;
      }
      tokens.push_back({Token::Kind::kWord, std::string(text.substr(begin, i - begin)), line});
    } else {
      tokens.push_back({Token::Kind::kPunctuation, std::string(1, c), line});
      ++i;
    }
  }
  tokens.push_back({Token::Kind::kEnd, "", line});
  return tokens;
}

}  // namespace fakecuda
