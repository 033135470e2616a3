// Completion for bash, zsh and fish. Each shell gets a script of its own idiom: a function over
// COMP_WORDS, a call of _arguments, and lines of `complete`. Names of flags and commands are plain
// words; only help is quoted.
#include <algorithm>

#include "engine/base/flag_pages.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Every table has these, too.
constexpr FlagRow kCommon[] = {
    {"help", 'h', FlagKind::kBool, "false", "", "prints a list of all flags"},
    {"version", 0, FlagKind::kBool, "false", "", "prints the version"},
};

std::vector<FlagRow> AllFlags(const ProgramPage& page, std::span<const FlagRow> own) {
  std::vector<FlagRow> rows(own.begin(), own.end());
  rows.insert(rows.end(), page.flags.begin(), page.flags.end());
  rows.insert(rows.end(), std::begin(kCommon), std::end(kCommon));
  return rows;
}

// The program as one command without a name, or its commands.
std::vector<CommandPage> Scopes(const ProgramPage& page) {
  if (!page.commands.empty()) return page.commands;
  return {CommandPage{"", page.arguments, page.summary, {}}};
}

std::string Identifier(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '-', '_');
  return out;
}

std::string Words(std::string_view choices) {
  std::string out(choices);
  std::ranges::replace(out, '|', ' ');
  return out;
}

// Within single quotes of a shell.
std::string SingleQuoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// zsh's _arguments ends the explanation at "]" and a field at ":".
std::string ZshText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string CompGen(const FlagRow& row) {
  switch (ValueOf(row)) {
    case FlagValue::kChoice:
      return StrCat("mapfile -t COMPREPLY < <(compgen -W '", Words(row.value),
                    "' -- \"$current\")");
    case FlagValue::kFile:
      return "mapfile -t COMPREPLY < <(compgen -f -- \"$current\")";
    case FlagValue::kFolder:
      return "mapfile -t COMPREPLY < <(compgen -d -- \"$current\")";
    case FlagValue::kNone:
    case FlagValue::kAnything:
      break;
  }
  return "COMPREPLY=()";
}

// The case of `$command:$previous` in which this flag's value is completed.
void AppendBashValues(std::string_view scope, std::span<const FlagRow> rows, std::string* out) {
  for (const FlagRow& row : rows) {
    if (ValueOf(row) == FlagValue::kNone) continue;
    StrAppend(out, "    ", scope, ":--", row.name);
    if (row.letter != 0) StrAppend(out, " | ", scope, ":-", std::string(1, row.letter));
    StrAppend(out, ") ", CompGen(row), "; return ;;\n");
  }
}

std::string ZshSpecs(const std::vector<FlagRow>& rows, std::string_view indent) {
  std::string out;
  for (const FlagRow& row : rows) {
    std::string value;
    switch (ValueOf(row)) {
      case FlagValue::kNone:
        break;
      case FlagValue::kAnything:
        value = StrCat(":", ZshText(row.value), ":");
        break;
      case FlagValue::kFile:
        value = StrCat(":", row.value, ":_files");
        break;
      case FlagValue::kFolder:
        value = StrCat(":", row.value, ":_files -/");
        break;
      case FlagValue::kChoice:
        value = StrCat(":word:(", Words(row.value), ")");
        break;
    }
    const std::string text = StrCat("[", ZshText(row.help), "]", value);
    const std::string_view many = row.kind == FlagKind::kList ? "*" : "";
    const std::string_view equals = value.empty() ? "" : "=";
    StrAppend(&out, indent, SingleQuoted(StrCat(many, "--", row.name, equals, text)), " \\\n");
    if (row.letter == 0) continue;
    StrAppend(&out, indent, SingleQuoted(StrCat(many, "-", std::string(1, row.letter), text)),
              " \\\n");
  }
  return out;
}

void AppendFish(std::string_view program, std::string_view command, const FlagRow& row,
                std::string* out) {
  StrAppend(out, "complete -c ", program);
  if (!command.empty()) StrAppend(out, " -n '__fish_seen_subcommand_from ", command, "'");
  StrAppend(out, " -l ", row.name);
  if (row.letter != 0) StrAppend(out, " -s ", std::string(1, row.letter));
  switch (ValueOf(row)) {
    case FlagValue::kNone:
      break;
    case FlagValue::kAnything:
      StrAppend(out, " -x");
      break;
    case FlagValue::kFile:
      StrAppend(out, " -r -F");
      break;
    case FlagValue::kFolder:
      StrAppend(out, " -x -a '(__fish_complete_directories)'");
      break;
    case FlagValue::kChoice:
      StrAppend(out, " -x -a '", Words(row.value), "'");
      break;
  }
  std::string help;  // fish knows \' and \\ within single quotes
  for (const char c : row.help)
    help += c == '\'' || c == '\\' ? StrCat("\\", std::string(1, c)) : std::string(1, c);
  StrAppend(out, " -d '", help, "'\n");
}

}  // namespace

std::string BashCompletion(const ProgramPage& page) {
  const std::string name = Identifier(page.name);
  std::string commands;
  for (const CommandPage& c : page.commands) {
    StrAppend(&commands, commands.empty() ? "" : " ", c.name);
  }
  std::string out = StrCat("# Completion of ", page.name, " for bash, made by ", page.name,
                           " --generate=bash.\n_", name,
                           "() {\n"
                           "  local current=${COMP_WORDS[COMP_CWORD]} "
                           "previous=${COMP_WORDS[COMP_CWORD - 1]} command=''\n"
                           "  # bash takes --flag=value as three words.\n"
                           "  if [ \"$current\" = = ]; then\n"
                           "    current=''\n"
                           "  elif [ \"$previous\" = = ]; then\n"
                           "    previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
                           "  fi\n");
  if (!commands.empty()) {
    StrAppend(
        &out, "  if [ \"$COMP_CWORD\" -gt 1 ]; then\n    local i\n    for i in ", commands,
        "; do\n      if [ \"${COMP_WORDS[1]}\" = \"$i\" ]; then command=$i; fi\n    done\n  fi\n");
  }
  StrAppend(&out, "  case \"$command:$previous\" in\n");
  for (const CommandPage& c : Scopes(page)) AppendBashValues(c.name, AllFlags(page, c.flags), &out);
  StrAppend(&out, "  esac\n  local words=''\n  case \"$command\" in\n");
  for (const CommandPage& c : Scopes(page)) {
    std::string flags;
    for (const FlagRow& row : AllFlags(page, c.flags)) {
      StrAppend(&flags, flags.empty() ? "" : " ", "--", row.name);
    }
    StrAppend(&out, "    '", c.name, "') words='", flags, "' ;;\n");
  }
  if (!commands.empty()) StrAppend(&out, "    *) words='", commands, " --help --version' ;;\n");
  StrAppend(&out,
            "  esac\n"
            "  case \"$current\" in\n"
            "    -*) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\") ;;\n");
  if (!commands.empty()) {
    StrAppend(
        &out,
        "    *) if [ -z \"$command\" ]; then mapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
        "\"$current\"); else mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); fi ;;\n");
  } else {
    StrAppend(&out, "    *) mapfile -t COMPREPLY < <(compgen -f -- \"$current\") ;;\n");
  }
  StrAppend(&out, "  esac\n}\ncomplete -o filenames -F _", name, " ", page.name, "\n");
  return out;
}

std::string ZshCompletion(const ProgramPage& page) {
  std::string out = StrCat("#compdef ", page.name, "\n# Completion of ", page.name,
                           " for zsh, made by ", page.name, " --generate=zsh.\n\n");
  if (page.commands.empty()) {
    StrAppend(&out, "_arguments \\\n", ZshSpecs(AllFlags(page, {}), "  "), "  '*:file:_files'\n");
    return out;
  }
  StrAppend(&out, "local -a commands\ncommands=(\n");
  for (const CommandPage& c : page.commands) {
    StrAppend(&out, "  ", SingleQuoted(StrCat(c.name, ":", c.summary)), "\n");
  }
  StrAppend(&out,
            ")\nif (( CURRENT == 2 )); then\n  _describe command commands\n  return\nfi\n"
            "local command=$words[2]\nshift words\n(( CURRENT-- ))\ncase $command in\n");
  for (const CommandPage& c : page.commands) {
    StrAppend(&out, "  ", c.name, ")\n    _arguments \\\n",
              ZshSpecs(AllFlags(page, c.flags), "      "), "      '*:file:_files'\n    ;;\n");
  }
  StrAppend(&out, "esac\n");
  return out;
}

std::string FishCompletion(const ProgramPage& page) {
  std::string out = StrCat("# Completion of ", page.name, " for fish, made by ", page.name,
                           " --generate=fish.\n");
  for (const CommandPage& c : page.commands) {
    StrAppend(&out, "complete -c ", page.name, " -n __fish_use_subcommand -f -a ", c.name, " -d ",
              SingleQuoted(c.summary), "\n");
  }
  for (const CommandPage& c : Scopes(page)) {
    for (const FlagRow& row : AllFlags(page, c.flags)) AppendFish(page.name, c.name, row, &out);
  }
  return out;
}

}  // namespace telegrad
