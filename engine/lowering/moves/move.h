// Moves as values. A move says how one range of a kernel is split or executed, and a list of moves
// is everything that a heuristic or a search decides about a kernel. A list is text:
//
//   PEEL r2 96, SEPARATE, UPCAST r0 14, VECTORIZE r1 16, THREAD r0, OUTER r0, OUTER r1
//
// r2 is the kernel's RANGE whose number (its first argument) is 2. A PEEL makes ranges: moves after
// it name those that it left and made. A JOIN of two leaves the one that it names last. What a list
// does is in apply.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/types/target.h"

namespace telegrad {

struct Move {
  enum class Kind {
#define MOVE(kind, ...) kind,
#include "engine/lowering/moves/moves.def"
#undef MOVE
  };
  Kind kind = Kind::kSeparate;
  int64_t range = -1;  // the number of a RANGE; -1: SEPARATE
  int64_t amount = 0;
  int axis = 0;        // LOCAL: of the workgroup's threads, which stand in a box of up to three
  int64_t inner = -1;  // JOIN: the number of the RANGE that both become
  int64_t ring = 1;    // STAGE: tiles in local memory, filled in turns (engine/lowering/staging.h)

  friend bool operator==(const Move&, const Move&) = default;
};

using MoveList = std::vector<Move>;

inline constexpr int kMaxThreadAxes = 3;
inline constexpr size_t kMaxMoves = 256;       // of a list
inline constexpr size_t kMaxMoveText = 8'192;  // characters of one

// What `amount` iterations of a range become, as a part of what is then a sum (split.h).
enum class MovePart : uint8_t {
  kNone,
  kLanes,        // of vectors: the innermost part
  kReplicas,     // computed together in registers
  kUnrolled,     // the same of what is reduced
  kLoop,         // around the parts of the other moves
  kThreads,      // of a workgroup, on the axis that the move names
  kInstruction,  // a matrix instruction's
};

// A row of moves.def.
struct MoveRow {
  Move::Kind kind;
  std::string_view name;
  bool range, amount, axis, inner, ring;  // what the text has after the name; `ring` if not 1
  MovePart part;
  ParallelLevels levels;  // that a target has on which it can be
  std::string_view what;  // for --list-moves

  constexpr bool splits() const { return part != MovePart::kNone; }
};
std::span<const MoveRow> AllMoves();
const MoveRow& RowOf(Move::Kind kind);
inline bool Takes(const Target& target, Move::Kind kind) {
  return target.levels.HasAll(RowOf(kind).levels);
}

std::string Print(const Move& move);       // "LOCAL r1 32 axis 1"
std::string Print(const MoveList& moves);  // separated by ", "
// INVALID_ARGUMENT names the move that is malformed. Whether a kernel can have them is not checked.
absl::StatusOr<MoveList> ParseMoves(std::string_view text);

}  // namespace telegrad
