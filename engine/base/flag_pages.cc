// The manual page: roff with the macros of man(7). A line that begins with a dot or an apostrophe
// would be a request, a backslash begins an escape, and a plain hyphen is printed as a typographic
// one: all are escaped.
#include "engine/base/flag_pages.h"

#include <cstdio>

#include "engine/base/status.h"
#include "engine/base/version.h"

namespace telegrad {
namespace {

std::string Roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

// As an argument of a macro, which quotes end.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\\(dq") : Roff(std::string(1, c));
  return out + "\"";
}

std::string Upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

void AppendFlag(const FlagRow& row, std::string* out) {
  StrAppend(out, ".TP\n");
  if (row.letter != 0) StrAppend(out, "\\fB\\-", std::string(1, row.letter), "\\fR, ");
  StrAppend(out, "\\fB\\-\\-", Roff(row.name), "\\fR");
  if (row.kind != FlagKind::kBool) StrAppend(out, " \\fI", Roff(row.value), "\\fR");
  StrAppend(out, "\n", Roff(FlagText(row)), "\n");
  if (row.reload == FlagReload::kWhileRunning) {
    StrAppend(out, "Changes to its content take effect without a restart.\n");
  } else if (row.reload == FlagReload::kReloaded) {
    StrAppend(out, "A change in the file of \\-\\-config takes effect on SIGHUP.\n");
  }
}

void AppendFlags(std::span<const FlagRow> rows, std::string* out) {
  for (const FlagRow& row : rows) AppendFlag(row, out);
}

void AppendCommonFlags(std::string* out) {
  StrAppend(out, ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nPrints a list of all flags.\n");
  StrAppend(out, ".TP\n\\fB\\-\\-version\\fR\nPrints the version.\n");
  StrAppend(out,
            ".TP\n\\fB\\-\\-generate\\fR=\\fIFORM\\fR\nPrints this manual page (man) or the "
            "completion of a shell (bash, zsh, fish).\n");
}

void AppendParagraphs(std::string_view text, std::string* out) {
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    StrAppend(out, ".PP\n", Roff(text.substr(0, end)), "\n");
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 2);
  }
}

}  // namespace

std::string ManPage(const ProgramPage& page) {
  const std::string name = Roff(page.name);
  std::string out = StrCat(".TH ", Quoted(Upper(page.name)), " ", page.section, " \"\" ",
                           Quoted(StrCat("Telegrad ", Version())), " \"Telegrad\"\n.SH NAME\n",
                           name, " \\- ", Roff(page.summary), "\n.SH SYNOPSIS\n");
  if (page.commands.empty()) {
    StrAppend(&out, "\\fB", name, "\\fR [\\fIflags\\fR] ", Roff(page.arguments), "\n");
  }
  for (const CommandPage& command : page.commands) {
    StrAppend(&out, "\\fB", name, " ", Roff(command.name), "\\fR ", Roff(command.arguments),
              " [\\fIflags\\fR]\n.br\n");
  }
  StrAppend(&out, ".SH DESCRIPTION\n");
  AppendParagraphs(page.description, &out);
  if (!page.commands.empty()) StrAppend(&out, ".SH COMMANDS\n");
  for (const CommandPage& command : page.commands) {
    StrAppend(&out, ".SS ", Quoted(StrCat(page.name, " ", command.name, " ", command.arguments)),
              "\n", Roff(command.summary), "\n");
    AppendFlags(command.flags, &out);
  }
  StrAppend(&out, page.commands.empty() ? ".SH OPTIONS\n" : ".SH \"OPTIONS OF EVERY COMMAND\"\n");
  AppendFlags(page.flags, &out);
  AppendCommonFlags(&out);
  if (!page.exit_codes.empty()) {
    StrAppend(&out, ".SH \"EXIT STATUS\"\n", Roff(page.exit_codes), "\n");
  }
  return out;
}

FlagValue ValueOf(const FlagRow& row) {
  if (row.kind == FlagKind::kBool) return FlagValue::kNone;
  if (row.kind == FlagKind::kChoice) return FlagValue::kChoice;
  if (row.value == "FILE" || row.value == "PATH") return FlagValue::kFile;
  if (row.value == "DIR") return FlagValue::kFolder;
  return FlagValue::kAnything;
}

absl::StatusOr<std::string> GeneratePage(const ProgramPage& page, std::string_view form) {
  if (form == "man") return ManPage(page);
  if (form == "bash") return BashCompletion(page);
  if (form == "zsh") return ZshCompletion(page);
  if (form == "fish") return FishCompletion(page);
  return InvalidArgument("--generate: \"", form, "\" is not one of man, bash, zsh, fish");
}

std::optional<PageAnswer> AnswerPage(const ProgramPage& page, const Flags& flags) {
  if (flags.version()) return PageAnswer{0, StrCat(page.name, " ", Version(), "\n"), ""};
  if (flags.generate().empty()) return std::nullopt;
  const auto text = GeneratePage(page, flags.generate());
  if (text.ok()) return PageAnswer{0, *text, ""};
  return PageAnswer{2, "", StrCat(page.name, ": ", text.status().message(), "\n")};
}

std::optional<int> PrintPage(const ProgramPage& page, const Flags& flags) {
  const std::optional<PageAnswer> answer = AnswerPage(page, flags);
  if (!answer) return std::nullopt;
  std::fputs(answer->err.c_str(), stderr);
  std::fputs(answer->out.c_str(), stdout);
  return std::fflush(stdout) == 0 ? answer->exit_code : 1;
}

}  // namespace telegrad
