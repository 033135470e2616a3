// The text of an instruction, taken apart: mnemonic, operands, modifiers. Assembly text is the form
// in which all targets and encodings are documented alike.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fakeamd {

struct Text {
  std::string mnemonic;
  std::string rest;  // all behind it
  std::vector<std::string> operands;
  std::map<std::string, std::string> modifiers;  // "offset" -> "16"; "clamp" -> ""

  bool Has(const std::string& name) const { return modifiers.contains(name); }
  // The number behind a modifier, or `otherwise` without it; empty if it is not a number.
  std::optional<int64_t> Number(const std::string& name, int64_t otherwise) const;
  // The numbers of a modifier like op_sel:[0,1].
  std::vector<int64_t> List(const std::string& name) const;
};

Text ParseText(std::string_view text);
// Decimal or hexadecimal, with a sign.
std::optional<int64_t> ParseInteger(std::string_view text);
std::string Hex(uint64_t x);

}  // namespace fakeamd
