#include "engine/base/flags.h"

#include <charconv>
#include <optional>

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

absl::Status CheckValue(const FlagRow& row, std::string_view value) {
  if (row.kind == FlagKind::kInt && !ToInt(value)) {
    return InvalidArgument("--", row.name, ": \"", value,
                           "\" is not a whole number from -2^63 to 2^63 - 1");
  }
  if (row.kind == FlagKind::kBool && value != "true" && value != "false") {
    return InvalidArgument("--", row.name, ": \"", value, "\" is neither true nor false");
  }
  return absl::OkStatus();
}

}  // namespace

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
    TG_RETURN_IF_ERROR(CheckValue(*row, value));
    auto& values = flags.values_[std::string(row->name)];
    if (row->kind != FlagKind::kList) values.clear();
    values.emplace_back(value);
  }
  return flags;
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
    std::string text(row.help);
    if (row.kind == FlagKind::kList) {
      StrAppend(&text, " (repeatable)");
    } else if (!row.default_value.empty() && row.kind != FlagKind::kBool) {
      StrAppend(&text, " (default ", row.default_value, ")");
    }
    entry(name, text);
  }
  entry("-h, --help", "this text");
  return help;
}

std::vector<std::string_view> Arguments(int argc, char** argv, int first) {
  std::vector<std::string_view> args;
  for (int i = first; i < argc; ++i) args.emplace_back(argv[i]);
  return args;
}

}  // namespace telegrad
