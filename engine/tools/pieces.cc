#include "engine/tools/pieces.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "engine/ir/text.h"
#include "engine/lowering/passes.h"

namespace telegrad {
namespace {

constexpr std::string_view kHeader = "---";

struct Section {
  std::string_view header;  // after the dashes; empty before the first
  std::string text;  // with an empty line for each line before it, so that errors count right
};

// The first line that says something; empty if none does.
absl::string_view FirstLine(std::string_view text) {
  for (absl::string_view line : absl::StrSplit(ToAbsl(text), '\n')) {
    line = absl::StripLeadingAsciiWhitespace(line);
    if (!line.empty() && line[0] != '#') return line;
  }
  return {};
}

std::vector<Section> Sections(std::string_view text) {
  std::vector<Section> sections(1);
  size_t line = 0;
  for (; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view now = text.substr(0, end);
    text.remove_prefix(end);
    if (now.starts_with(kHeader)) {
      sections.push_back({now.substr(kHeader.size()), std::string(line + 1, '\n')});
    } else {
      sections.back().text += now;
    }
  }
  // Comments above the first header are no piece.
  if (sections.size() > 1 && FirstLine(sections.front().text).empty()) {
    sections.erase(sections.begin());
  }
  return sections;
}

// " kernel1(slot1, temporary0): stores".
void ParseHeader(std::string_view header, Piece* piece) {
  const absl::string_view text = absl::StripAsciiWhitespace(ToAbsl(header));
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const std::pair<absl::string_view, absl::string_view> name =
      absl::StrSplit(parts.first, absl::MaxSplits('(', 1));
  piece->name = std::string(absl::StripAsciiWhitespace(name.first));
  piece->note = std::string(absl::StripAsciiWhitespace(parts.second));
  const absl::string_view bindings =
      absl::StripSuffix(absl::StripAsciiWhitespace(name.second), ")");
  for (absl::string_view binding : absl::StrSplit(bindings, ',', absl::SkipWhitespace())) {
    piece->bindings.emplace_back(absl::StripAsciiWhitespace(binding));
  }
}

// The narrowest level that admits every node.
uint8_t LevelsOf(UOp root) {
  for (const uint8_t levels : {kTensorLevel, kKernelLevel}) {
    const auto admits = [&](uint32_t id) {
      return (Info(root.graph()->op(id)).levels & levels) != 0;
    };
    if (std::ranges::all_of(PostOrder(root), admits)) return levels;
  }
  return kKernelLevel | kProgramLevel;
}

absl::StatusOr<Piece> ParsePiece(const Section& section, size_t number) {
  Piece piece;
  ParseHeader(section.header, &piece);
  if (piece.name.empty()) piece.name = StrCat("piece", number);
  if (absl::StartsWith(FirstLine(section.text), "program")) {
    TG_ASSIGN_OR_RETURN(Program program, ParseProgram(section.text));
    piece.levels = kProgramLevel;
    piece.arguments = program.arguments;
    piece.program = std::make_shared<const Program>(std::move(program));
    return piece;
  }
  // A copy has the ids that Print gives as labels.
  Graph parsed;
  TG_ASSIGN_OR_RETURN(const UOp root, Parse(section.text, &parsed));
  piece.graph = std::make_shared<Graph>();
  piece.root = CopyLive(root, piece.graph.get());
  TG_RETURN_IF_ERROR(piece.graph->status());
  piece.levels = LevelsOf(piece.root);
  if (piece.levels != kTensorLevel) piece.arguments = KernelArguments(piece.root);
  return piece;
}

}  // namespace

absl::StatusOr<std::vector<Piece>> ParsePieces(std::string_view text, int64_t only) {
  const std::vector<Section> sections = Sections(text);
  if (only >= static_cast<int64_t>(sections.size())) {
    return InvalidArgument("there is no piece ", only, ", the text has ", sections.size());
  }
  std::vector<Piece> pieces;
  for (size_t i = 0; i < sections.size(); ++i) {
    if (only >= 0 && static_cast<int64_t>(i) != only) continue;
    TG_ASSIGN_OR_RETURN(Piece piece, ParsePiece(sections[i], i));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::string PrintPiece(const Piece& piece) {
  if (piece.program == nullptr) return Print(piece.root);
  const std::string& moves = piece.program->moves;
  return StrCat(moves.empty() ? "" : StrCat("# moves: ", moves, "\n"), Print(*piece.program));
}

std::string PrintPieces(const std::vector<Piece>& pieces) {
  if (pieces.size() == 1 && pieces.front().bindings.empty()) return PrintPiece(pieces.front());
  std::string text;
  for (const Piece& piece : pieces) {
    StrAppend(&text, kHeader, " ", piece.name);
    if (!piece.bindings.empty()) StrAppend(&text, "(", absl::StrJoin(piece.bindings, ", "), ")");
    if (!piece.note.empty()) StrAppend(&text, ": ", piece.note);
    StrAppend(&text, "\n", PrintPiece(piece));
  }
  return text;
}

}  // namespace telegrad
