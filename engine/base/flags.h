// Command lines described by a table. Parsing, the check of values, --help, man pages and the
// completion of shells are derived from its rows (flags.cc, flag_pages.cc). A flag is given as
// --name value,
// --name=value or -s value; a kBool as --name or --name=false. "--" ends the flags.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace telegrad {

// kChoice takes one of the words of FlagRow::value, which are separated by "|".
enum class FlagKind : uint8_t { kBool, kInt, kString, kList, kChoice };

// The values of a kInt, both ends included.
struct FlagRange {
  int64_t min = INT64_MIN;
  int64_t max = INT64_MAX;
  bool operator==(const FlagRange&) const = default;
};
constexpr FlagRange Between(int64_t min, int64_t max) { return {min, max}; }
constexpr FlagRange AtLeast(int64_t min) { return {min, INT64_MAX}; }

// When a running program takes up a change: of the value at its next start, though of the content
// of the file or folder that it names while it runs; or of the value, too, when the program reads
// its configuration again. kCommandLine: it is not of the configuration.
enum class FlagReload : uint8_t { kAtStart, kWhileRunning, kReloaded, kCommandLine };

struct FlagRow {
  std::string_view name;
  char letter;  // 0: none
  FlagKind kind;
  std::string_view default_value;  // empty for kList: no values
  std::string_view value;          // what stands for the value in --help
  std::string_view help;           // a sentence that stands alone
  FlagRange range = {};
  FlagReload reload = FlagReload::kAtStart;
};

class Flags {
 public:
  // INVALID_ARGUMENT names the argument and what was expected. `args` is without the program's
  // name. Every table also has --help, -h, --version and --generate=FORM.
  static absl::StatusOr<Flags> Parse(std::span<const FlagRow> table,
                                     std::span<const std::string_view> args);

  // The value of a flag in the table, which must be of that kind.
  bool GetBool(std::string_view name) const;
  int64_t GetInt(std::string_view name) const;
  const std::string& GetString(std::string_view name) const;
  const std::vector<std::string>& GetList(std::string_view name) const;

  // Whether the command line has it.
  bool given(std::string_view name) const { return given_.contains(name); }
  // Takes what the flag had by default away, and gives it these values.
  void Replace(std::string_view name, std::vector<std::string> values);

  bool help() const { return help_; }
  bool version() const { return version_; }
  const std::string& generate() const { return generate_; }  // empty: not asked for
  const std::vector<std::string>& positional() const { return positional_; }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::set<std::string, std::less<>> given_;
  std::vector<std::string> positional_;
  bool help_ = false, version_ = false;
  std::string generate_;
};

// OK if a flag of this row may have this value.
absl::Status CheckFlagValue(const FlagRow& row, std::string_view value);

// The help of a row, followed by its range, its default and whether it may be repeated.
std::string FlagText(const FlagRow& row);

// One indented entry per row.
std::string FlagHelp(std::span<const FlagRow> table);

// argv[first..].
std::vector<std::string_view> Arguments(int argc, char** argv, int first = 1);

}  // namespace telegrad
