// Command lines described by a table: the parser and --help are derived from its rows. A flag is
// given as
// --name value, --name=value or -s value; a bool as --name or --name=false. "--" ends the flags.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

enum class FlagKind : uint8_t { kBool, kInt, kString, kList };

struct FlagRow {
  std::string_view name;
  char letter;  // 0: none
  FlagKind kind;
  std::string_view default_value;  // empty for kList: no values
  std::string_view value;          // what stands for the value in --help
  std::string_view help;
};

class Flags {
 public:
  // INVALID_ARGUMENT names the argument and what was expected. `args` is without the program's
  // name. Every table also knows --help, -h.
  static absl::StatusOr<Flags> Parse(std::span<const FlagRow> table,
                                     std::span<const std::string_view> args);

  // Of a flag in the table, of that kind.
  bool GetBool(std::string_view name) const;
  int64_t GetInt(std::string_view name) const;
  const std::string& GetString(std::string_view name) const;
  const std::vector<std::string>& GetList(std::string_view name) const;

  bool help() const { return help_; }
  const std::vector<std::string>& positional() const { return positional_; }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> positional_;
  bool help_ = false;
};

// One indented entry per row.
std::string FlagHelp(std::span<const FlagRow> table);

// argv[first..].
std::vector<std::string_view> Arguments(int argc, char** argv, int first = 1);

}  // namespace telegrad
