// What people and shells read about a program, made from its table of flags: --help, --version, the
// manual page (roff, man(7)) and completion for bash, zsh and fish.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/flags.h"

namespace telegrad {

struct CommandPage {
  std::string_view name;
  std::string_view arguments;  // what follows the name in the usage line
  std::string_view summary;
  std::span<const FlagRow> flags;  // beside those of the program
};

struct ProgramPage {
  std::string_view name;
  std::string_view section;        // of the manual: 1 commands of users, 8 of administrators
  std::string_view summary;        // a phrase, without a full stop
  std::string_view arguments;      // what follows the flags in the usage line
  std::string_view description;    // paragraphs, an empty line between them
  std::string_view exit_codes;     // a sentence; may be empty
  std::span<const FlagRow> flags;  // where there are commands: of each of them
  std::vector<CommandPage> commands = {};
};

// `form` is man, bash, zsh or fish; INVALID_ARGUMENT for others.
absl::StatusOr<std::string> GeneratePage(const ProgramPage& page, std::string_view form);

std::string ManPage(const ProgramPage& page);
std::string BashCompletion(const ProgramPage& page);
std::string ZshCompletion(const ProgramPage& page);
std::string FishCompletion(const ProgramPage& page);

struct PageAnswer {
  int exit_code = 0;  // 0, or 2 for a --generate that cannot be
  std::string out, err;
};
// What --version or --generate asks for; nothing where neither was given. --help is left to the
// program, which may have more to say.
std::optional<PageAnswer> AnswerPage(const ProgramPage& page, const Flags& flags);
// The same, printed; the program's exit code.
std::optional<int> PrintPage(const ProgramPage& page, const Flags& flags);

// What the value of a flag completes to.
enum class FlagValue : uint8_t { kNone, kAnything, kFile, kFolder, kChoice };
FlagValue ValueOf(const FlagRow& row);

}  // namespace telegrad
