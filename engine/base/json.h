// A strict, pull-style JSON reader (RFC 8259) for file headers and tokens: no tree, no recursion,
// no allocation beyond the strings read. A function returns false when the input does not match
// what it reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace telegrad {

class JsonReader {
 public:
  static constexpr size_t kMaxNesting = 16;

  explicit JsonReader(std::string_view text) : text_(text) {}

  // Skips white space and takes `c`, if it is next.
  bool Eat(char c);
  // A string with its escapes undone; false unless it is valid UTF-8.
  bool String(std::string* out);
  // An integer without sign, fraction or exponent, at most INT64_MAX.
  bool Size(int64_t* out);
  bool Number(double* out);  // finite
  // A number as it is written, for who wants all of its digits.
  bool NumberText(std::string_view* out);
  bool Bool(bool* out);
  // Skips any value; false if it is nested deeper than kMaxNesting.
  bool SkipValue();
  bool AtEnd();
  size_t position() const { return at_; }

 private:
  bool Hex4(uint32_t* out);
  bool Escape(std::string* out);
  bool Word(std::string_view word);
  bool SkipScalar();
  void Skip();

  std::string_view text_;
  size_t at_ = 0;
};

bool IsUtf8(std::string_view text);
// `text`, which is UTF-8, in quotes.
std::string JsonQuote(std::string_view text);

}  // namespace telegrad
