// Splits the text at commas and spaces outside of brackets. A word with a colon, and each
// further word of an operand, is a modifier.
#include "tests/fakes/amd/text.h"

#include <charconv>

namespace fakeamd {
namespace {

// The pieces between separators that stand in no parentheses or brackets.
std::vector<std::string> SplitOutside(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == separator && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string Hex(uint64_t x) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (; x != 0 || text.empty(); x >>= 4) text.insert(text.begin(), kDigits[x & 15]);
  return "0x" + text;
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return static_cast<int64_t>(negative ? -value : value);
}

std::optional<int64_t> Text::Number(const std::string& name, int64_t otherwise) const {
  const auto it = modifiers.find(name);
  return it == modifiers.end() ? otherwise : ParseInteger(it->second);
}

std::vector<int64_t> Text::List(const std::string& name) const {
  std::vector<int64_t> numbers;
  const auto it = modifiers.find(name);
  if (it == modifiers.end() || it->second.size() < 2) return numbers;
  const std::string_view inside = std::string_view(it->second).substr(1, it->second.size() - 2);
  for (const std::string& part : SplitOutside(inside, ',')) {
    numbers.push_back(ParseInteger(Trimmed(part)).value_or(-1));
  }
  return numbers;
}

Text ParseText(std::string_view text) {
  Text result;
  text = Trimmed(text);
  const size_t space = std::min(text.find(' '), text.find('\t'));
  result.mnemonic = text.substr(0, space);
  if (space == std::string_view::npos) return result;
  result.rest = Trimmed(text.substr(space));
  for (const std::string& part : SplitOutside(result.rest, ',')) {
    bool first = true;
    for (const std::string& word : SplitOutside(Trimmed(part), ' ')) {
      if (word.empty()) continue;
      // The colon of a range of registers stands behind a bracket.
      const size_t colon = word.find_first_of(":[(|");
      const bool named = colon != std::string::npos && word[colon] == ':';
      const bool modifier = !first || named;
      first = false;
      if (!modifier) {
        result.operands.push_back(word);
      } else if (!named) {
        result.modifiers[word] = "";
      } else {
        result.modifiers[word.substr(0, colon)] = word.substr(colon + 1);
      }
    }
  }
  return result;
}

}  // namespace fakeamd
