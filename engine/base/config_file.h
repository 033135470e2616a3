// A file that says what flags would say: one NAME = VALUE to a line, with the names, kinds and
// ranges of the table of flags.
//
//   # comment
//   listen = 0.0.0.0:50055
//   listen = unix:/run/telegrad/socket     a flag that may be repeated is
//   tls-cert = "/etc/a #1/cert.pem"        a value with " #" in it, or blanks at its ends
//
//   [section]                              what follows is for whoever understands sections
//
// A '#' at the beginning of a line or behind a blank begins a comment. A file may say that it is
// whole: its last line is the comment "# end".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/flags.h"

namespace telegrad {

struct ConfigFile {
  struct Setting {
    const FlagRow* row;
    std::string value;
  };
  std::vector<Setting> settings;  // in the order of their lines
  std::string sections;           // the text from the first one on, behind as many empty lines
};

// Whether the last line that is not blank is "# end", and it is a whole line.
bool SaysItIsWhole(std::string_view text);

// INVALID_ARGUMENT has a line for each mistake, the first few of them: "FILE:LINE: what is wrong".
absl::StatusOr<ConfigFile> ParseConfig(std::string_view text, std::string_view file,
                                       std::span<const FlagRow> table);

// The flags in this form: those with a value of their own, each behind a comment that says what it
// is, and the others as comments with their default. It can be parsed, and then says the same.
std::string PrintConfig(std::span<const FlagRow> table, const Flags& flags);

// Mistakes in a file, as many as one can mend at once.
class Mistakes {
 public:
  explicit Mistakes(std::string_view file) : file_(file) {}
  void Add(int line, std::string_view what);
  absl::Status ToStatus() const;  // OK if there are none

 private:
  const std::string file_;
  std::string text_;
  int count_ = 0;
};

}  // namespace telegrad
