#include "engine/lowering/moves/move.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace telegrad {
namespace {

constexpr ParallelLevels kEvery = {}, kWorkers = {ParallelLevel::kWorkers},
                         kGroups = {ParallelLevel::kGroups, ParallelLevel::kThreads};

// What the text of a move has.
constexpr int kRange = 1, kAmount = 2, kAxis = 4, kInner = 8, kRing = 16;

constexpr MoveRow kMoves[] = {
#define MOVE(kind, name, takes, part, levels, what) \
  {Move::Kind::kind,                                \
   name,                                            \
   ((takes) & kRange) != 0,                         \
   ((takes) & kAmount) != 0,                        \
   ((takes) & kAxis) != 0,                          \
   ((takes) & kInner) != 0,                         \
   ((takes) & kRing) != 0,                          \
   MovePart::part,                                  \
   levels,                                          \
   what},
#include "engine/lowering/moves/moves.def"
#undef MOVE
};

// A number without sign or blanks.
bool ParseCount(absl::string_view text, int64_t* out) {
  constexpr size_t kDigits = 12;
  return !text.empty() && text.size() <= kDigits && absl::ascii_isdigit(text[0]) != 0 &&
         absl::SimpleAtoi(text, out);
}

absl::StatusOr<Move> ParseMove(absl::string_view text) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t\n\r"), absl::SkipEmpty());
  const auto bad = [&](std::string_view why) {
    return InvalidArgument("moves: \"", ToStd(text.substr(0, 60)), "\": ", why);
  };
  if (words.empty()) return bad("a move is missing between commas");
  for (const MoveRow& row : kMoves) {
    if (ToStd(words[0]) != row.name) continue;
    Move move{.kind = row.kind};
    size_t next = 1;
    if (row.range) {
      if (words.size() <= next || words[next][0] != 'r' ||
          !ParseCount(words[next].substr(1), &move.range)) {
        return bad("a range such as r2 follows the name");
      }
      ++next;
    }
    if (row.amount) {
      if (words.size() <= next || !ParseCount(words[next], &move.amount) || move.amount < 1) {
        return bad("an amount of at least 1 follows the range");
      }
      ++next;
    }
    if (row.axis) {
      int64_t axis = 0;
      if (words.size() <= next + 1 || words[next] != "axis" ||
          !ParseCount(words[next + 1], &axis) || axis >= kMaxThreadAxes) {
        return bad("an axis such as \"axis 0\", of 0 to 2, follows the amount");
      }
      move.axis = static_cast<int>(axis);
      next += 2;
    }
    if (row.inner) {
      if (words.size() <= next || words[next][0] != 'r' ||
          !ParseCount(words[next].substr(1), &move.inner)) {
        return bad("a second range such as r2 follows the first one");
      }
      ++next;
    }
    if (row.ring && words.size() > next) {
      if (words.size() <= next + 1 || words[next] != "ring" ||
          !ParseCount(words[next + 1], &move.ring) || move.ring < 2) {
        return bad("\"ring\" and a number of at least 2 may follow the amount");
      }
      next += 2;
    }
    if (words.size() != next) return bad("there is more than the move has");
    return move;
  }
  return bad("there is no such move; see telegrad-opt --list-moves");
}

}  // namespace

std::span<const MoveRow> AllMoves() { return kMoves; }

const MoveRow& RowOf(Move::Kind kind) { return kMoves[static_cast<size_t>(kind)]; }

std::string Print(const Move& move) {
  const MoveRow& row = RowOf(move.kind);
  std::string out(row.name);
  if (row.range) StrAppend(&out, " r", move.range);
  if (row.amount) StrAppend(&out, " ", move.amount);
  if (row.axis) StrAppend(&out, " axis ", move.axis);
  if (row.inner) StrAppend(&out, " r", move.inner);
  if (row.ring && move.ring != 1) StrAppend(&out, " ring ", move.ring);
  return out;
}

std::string Print(const MoveList& moves) {
  std::string out;
  for (const Move& move : moves) StrAppend(&out, out.empty() ? "" : ", ", Print(move));
  return out;
}

absl::StatusOr<MoveList> ParseMoves(std::string_view text) {
  if (text.size() > kMaxMoveText) {
    return InvalidArgument("moves: ", text.size(), " characters, at most ", kMaxMoveText);
  }
  MoveList moves;
  if (absl::StripAsciiWhitespace(ToAbsl(text)).empty()) return moves;
  for (absl::string_view part : absl::StrSplit(ToAbsl(text), ',')) {
    if (moves.size() == kMaxMoves) return InvalidArgument("moves: more than ", kMaxMoves);
    TG_ASSIGN_OR_RETURN(moves.emplace_back(), ParseMove(absl::StripAsciiWhitespace(part)));
  }
  return moves;
}

}  // namespace telegrad
