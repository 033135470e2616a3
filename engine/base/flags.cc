#include "engine/base/flags.h"

#include <charconv>
#include <optional>

#include "absl/strings/str_replace.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

std::optional<int64_t> ToInt(std::string_view text) {
  int64_t value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

const FlagRow* FindByName(std::span<const FlagRow> table, std::string_view name) {
  for (const FlagRow& row : table) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const FlagRow* FindByLetter(std::span<const FlagRow> table, char letter) {
  for (const FlagRow& row : table) {
    if (row.letter == letter) return &row;
  }
  return nullptr;
}

// Whether `word` is one of the words of `choices`, which "|" separates.
bool IsChoice(std::string_view choices, std::string_view word) {
  while (true) {
    const size_t end = choices.find('|');
    if (choices.substr(0, end) == word) return true;
    if (end == std::string_view::npos) return false;
    choices.remove_prefix(end + 1);
  }
}

}  // namespace

absl::Status CheckFlagValue(const FlagRow& row, std::string_view value) {
  switch (row.kind) {
    case FlagKind::kInt: {
      const std::optional<int64_t> number = ToInt(value);
      if (!number) {
        return InvalidArgument("--", row.name, ": \"", value,
                               "\" is not a whole number from -2^63 to 2^63 - 1");
      }
      if (*number < row.range.min || *number > row.range.max) {
        if (row.range.max == INT64_MAX) {
          return InvalidArgument("--", row.name, ": ", *number, " is too small; expected at least ",
                                 row.range.min);
        }
        return InvalidArgument("--", row.name, ": ", *number, " is not from ", row.range.min,
                               " to ", row.range.max);
      }
      return absl::OkStatus();
    }
    case FlagKind::kBool:
      if (value == "true" || value == "false") return absl::OkStatus();
      return InvalidArgument("--", row.name, ": \"", value, "\" is neither true nor false");
    case FlagKind::kChoice:
      if (IsChoice(row.value, value)) return absl::OkStatus();
      return InvalidArgument("--", row.name, ": \"", value, "\" is not one of ",
                             absl::StrReplaceAll(ToAbsl(row.value), {{"|", ", "}}));
    case FlagKind::kString:
    case FlagKind::kList:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<Flags> Flags::Parse(std::span<const FlagRow> table,
                                   std::span<const std::string_view> args) {
  Flags flags;
  for (const FlagRow& row : table) {
    auto& values = flags.values_[std::string(row.name)];
    if (row.kind != FlagKind::kList) values.emplace_back(row.default_value);
  }
  bool only_positional = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    if (only_positional || arg.size() < 2 || arg[0] != '-') {
      flags.positional_.emplace_back(arg);
      continue;
    }
    if (arg == "--") {
      only_positional = true;
      continue;
    }
    if (arg == "--help" || arg == "-h") {
      flags.help_ = true;
      continue;
    }
    if (arg == "--version") {
      flags.version_ = true;
      continue;
    }
    if (constexpr std::string_view kGenerate = "--generate="; arg.starts_with(kGenerate)) {
      flags.generate_ = arg.substr(kGenerate.size());
      if (flags.generate_.empty()) return InvalidArgument(arg, " needs a value; see --help");
      continue;
    }
    const bool is_long = arg[1] == '-';
    const size_t equals = is_long ? arg.find('=') : std::string_view::npos;
    const FlagRow* row = is_long           ? FindByName(table, arg.substr(2, equals - 2))
                         : arg.size() == 2 ? FindByLetter(table, arg[1])
                                           : nullptr;
    if (row == nullptr) return InvalidArgument("unknown flag ", arg, "; see --help");
    std::string_view value = "true";
    if (equals != std::string_view::npos) {
      value = arg.substr(equals + 1);
    } else if (row->kind != FlagKind::kBool) {
      if (i + 1 == args.size()) return InvalidArgument(arg, " needs a value: ", row->value);
      value = args[++i];
    }
    TG_RETURN_IF_ERROR(CheckFlagValue(*row, value));
    auto& values = flags.values_[std::string(row->name)];
    if (row->kind != FlagKind::kList) values.clear();
    values.emplace_back(value);
    flags.given_.emplace(row->name);
  }
  return flags;
}

void Flags::Replace(std::string_view name, std::vector<std::string> values) {
  values_[std::string(name)] = std::move(values);
}

const std::vector<std::string>& Flags::GetList(std::string_view name) const {
  static const auto* const kNone = new std::vector<std::string>();
  const auto it = values_.find(name);
  return it == values_.end() ? *kNone : it->second;
}

const std::string& Flags::GetString(std::string_view name) const {
  static const auto* const kEmpty = new std::string();
  const auto& values = GetList(name);
  return values.empty() ? *kEmpty : values.front();
}

bool Flags::GetBool(std::string_view name) const { return GetString(name) == "true"; }
int64_t Flags::GetInt(std::string_view name) const { return ToInt(GetString(name)).value_or(0); }

std::string FlagText(const FlagRow& row) {
  std::string text(row.help);
  std::string notes;
  const auto note = [&notes](const auto&... parts) {
    StrAppend(&notes, notes.empty() ? "" : ", ", parts...);
  };
  if (row.kind == FlagKind::kList) note("repeatable");
  if (row.kind == FlagKind::kInt && row.range != FlagRange()) {
    if (row.range.max == INT64_MAX) {
      note("at least ", row.range.min);
    } else {
      note(row.range.min, " to ", row.range.max);
    }
  }
  if (!row.default_value.empty() && row.kind != FlagKind::kBool && row.kind != FlagKind::kList) {
    note("default ", row.default_value);
  }
  if (!notes.empty()) StrAppend(&text, " (", notes, ")");
  return text;
}

std::string FlagHelp(std::span<const FlagRow> table) {
  std::string help;
  const auto entry = [&help](std::string_view name, std::string_view text) {
    StrAppend(&help, "  ", name);
    if (name.size() < 28) {
      help.append(28 - name.size(), ' ');
    } else {
      StrAppend(&help, "\n", std::string(30, ' '));
    }
    StrAppend(&help, text, "\n");
  };
  for (const FlagRow& row : table) {
    std::string name = row.letter != 0 ? StrCat("-", std::string(1, row.letter), ", ") : "";
    StrAppend(&name, "--", row.name);
    if (row.kind != FlagKind::kBool) StrAppend(&name, " ", row.value);
    entry(name, FlagText(row));
  }
  entry("-h, --help", "prints this text");
  entry("--version", "prints the version");
  entry("--generate=FORM",
        "prints the manual page (man) or the completion of a shell (bash, zsh, fish)");
  return help;
}

std::vector<std::string_view> Arguments(int argc, char** argv, int first) {
  std::vector<std::string_view> args;
  for (int i = first; i < argc; ++i) args.emplace_back(argv[i]);
  return args;
}

}  // namespace telegrad
