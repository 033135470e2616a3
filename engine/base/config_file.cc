#include "engine/base/config_file.h"

#include <algorithm>
#include <map>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int kMostMistakes = 20;
constexpr std::string_view kBlanks = " \t\r", kEnd = "# end";

std::string_view Stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// The line without its comment.
std::string_view WithoutComment(std::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '#' && !quoted && (i == 0 || kBlanks.find(line[i - 1]) != kBlanks.npos)) {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string Printable(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 64)) out += c >= ' ' && c < 127 ? c : '?';
  return out + "\"";
}

// The name that was meant, most likely: it begins alike, or differs in one letter.
std::string_view NearestName(std::span<const FlagRow> table, std::string_view name) {
  std::string_view best;
  size_t most = 2;  // letters that are equal at both ends together
  for (const FlagRow& row : table) {
    const size_t shorter = std::min(row.name.size(), name.size());
    size_t front = 0, back = 0;
    while (front < shorter && row.name[front] == name[front]) ++front;
    while (back < shorter - front &&
           row.name[row.name.size() - 1 - back] == name[name.size() - 1 - back]) {
      ++back;
    }
    const size_t longer = std::max(row.name.size(), name.size());
    if (front + back > most && front + back + 2 >= longer) {
      most = front + back;
      best = row.name;
    }
  }
  return best;
}

absl::StatusOr<std::string> ValueFrom(std::string_view text) {
  if (!text.starts_with('"')) return std::string(text);
  if (text.size() < 2 || !text.ends_with('"') ||
      text.substr(1, text.size() - 2).find('"') != text.npos) {
    return InvalidArgument("a value that begins with a quote ends with one, and has none inside");
  }
  return std::string(text.substr(1, text.size() - 2));
}

class Reader {
 public:
  explicit Reader(std::span<const FlagRow> table) : table_(table) {}

  absl::Status Line(int number, std::string_view line, ConfigFile* out) {
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return InvalidArgument(Printable(line), " is neither NAME = VALUE nor [SECTION]");
    }
    const std::string_view name = Stripped(line.substr(0, equals));
    const auto row = std::ranges::find(table_, name, &FlagRow::name);
    if (row == table_.end()) {
      const std::string_view nearest = NearestName(table_, name);
      return InvalidArgument(
          "no flag is named ", Printable(name), "; ",
          nearest.empty() ? "telegradd --help lists all" : StrCat("there is ", nearest));
    }
    if (row->reload == FlagReload::kCommandLine) {
      return InvalidArgument(name, " is given on the command line only");
    }
    TG_ASSIGN_OR_RETURN(std::string value, ValueFrom(Stripped(line.substr(equals + 1))));
    if (absl::Status status = CheckFlagValue(*row, value); !status.ok()) {
      return InvalidArgument(ToStd(status.message()).substr(2));  // without the dashes
    }
    const auto [first, fresh] = lines_.emplace(row->name, number);
    if (!fresh && row->kind != FlagKind::kList) {
      return InvalidArgument("a second ", name, "; the first is in line ", first->second);
    }
    out->settings.push_back({&*row, std::move(value)});
    return absl::OkStatus();
  }

 private:
  const std::span<const FlagRow> table_;
  std::map<std::string_view, int> lines_;  // by name: the first
};

std::string QuotedIfNeeded(std::string_view value) {
  const bool plain =
      Stripped(value) == value && WithoutComment(value) == value && !value.starts_with('"');
  return plain ? std::string(value) : StrCat("\"", value, "\"");
}

}  // namespace

void Mistakes::Add(int line, std::string_view what) {
  if (++count_ > kMostMistakes) return;
  StrAppend(&text_, text_.empty() ? "" : "\n", file_, ":", line, ": ", what);
}

absl::Status Mistakes::ToStatus() const {
  if (count_ == 0) return absl::OkStatus();
  if (count_ <= kMostMistakes) return InvalidArgument(text_);
  return InvalidArgument(text_, "\n", file_, ": ", count_ - kMostMistakes, " more mistakes");
}

bool SaysItIsWhole(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos || text.find('\n', last) == std::string_view::npos) {
    return false;
  }
  text = text.substr(0, last + 1);
  return Stripped(text.substr(text.rfind('\n') + 1)) == kEnd;  // npos + 1 is 0
}

absl::StatusOr<ConfigFile> ParseConfig(std::string_view text, std::string_view file,
                                       std::span<const FlagRow> table) {
  ConfigFile out;
  Reader reader(table);
  Mistakes mistakes(file);
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = Stripped(WithoutComment(text.substr(0, end)));
    if (line.starts_with('[')) {
      out.sections = std::string(static_cast<size_t>(number - 1), '\n');
      out.sections += text;
      break;
    }
    if (!line.empty()) {
      const absl::Status status = reader.Line(number, line, &out);
      if (!status.ok()) mistakes.Add(number, ToStd(status.message()));
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  TG_RETURN_IF_ERROR(mistakes.ToStatus());
  return out;
}

std::string PrintConfig(std::span<const FlagRow> table, const Flags& flags) {
  std::string out;
  for (const FlagRow& row : table) {
    if (row.reload == FlagReload::kCommandLine) continue;
    StrAppend(&out, "# ", FlagText(row), "\n");
    const std::vector<std::string>& values = flags.GetList(row.name);
    const bool is_default =
        row.kind == FlagKind::kList
            ? values.empty()
            : values == std::vector<std::string>{std::string(row.default_value)};
    if (is_default) StrAppend(&out, "#", row.name, " = ", QuotedIfNeeded(row.default_value), "\n");
    for (const std::string& value : values) {
      if (!is_default) StrAppend(&out, row.name, " = ", QuotedIfNeeded(value), "\n");
    }
    StrAppend(&out, "\n");
  }
  return out;
}

}  // namespace telegrad
