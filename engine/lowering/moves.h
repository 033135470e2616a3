// Moves: how a kernel's ranges are split and executed. A heuristic picks them; applying them
// rewrites the kernel and never changes what it computes, up to the order of float reductions.
#pragma once

#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

struct Move {
  enum class Kind {
    kVectorize,   // the innermost `amount` iterations become the lanes of vectors
    kUpcast,      // `amount` iterations are computed together in registers
    kUnroll,      // the same for a range that is folded; `amount` divides its size
    kThread,      // the iterations are sliced over workers; the range becomes the outermost
    kOuter,       // the range is moved outside of all others so far
    kPeel,        // the first `amount` iterations of a fold, or of a loop, are one of their own
    kLocal,       // `amount` iterations are done by as many threads of a workgroup
    kGroup,       // what the other moves leave of the range becomes workgroups
    kTensorcore,  // `amount` iterations are a matrix instruction's: rows, columns or folded
    kStage,       // of a folded range: a matrix product's operands come by way of local memory
    kBlock,       // of a folded range: `amount` iterations are folded at a time, in loops inside of
                  // those that are moved before, see block.h; of a loop: in parts of `amount`
  };
  Kind kind;
  UOp range;
  int64_t amount = 0;
  int axis = 0;  // LOCAL: of the workgroup's threads, which stand in a box of up to three
};

inline constexpr int kMaxThreadAxes = 3;

std::string_view Name(Move::Kind kind);

// Joins neighbouring ranges that every access walks as one. Only where that saves lanes, and where
// the gates of a fold's windows are all that can tell them apart, gates get both from their
// product.
UOp MergeRanges(Rewriter& b, UOp sink, const Target& target);

// Lists that are good for the target at once, without measuring: PEELs, and once these are applied
// and the ranges separated the others.
std::vector<Move> PickPeels(UOp sink, std::span<const Program::Argument> arguments,
                            const Target& target);
std::vector<Move> PickMoves(UOp sink, std::span<const Program::Argument> arguments,
                            const Target& target);

// A list for a target that has workgroups.
std::vector<Move> PickWorkgroupMoves(UOp sink, const Target& target);

// Peels, or splits the ranges. Where the amounts do not divide a size, the last tile is moved back
// until it is whole, and computes some elements again; or, where an argument is both written and
// read or the tile is larger than the size, it is rounded up, and the stores, and the loads that
// would leave their buffers, are gated.
absl::StatusOr<UOp> ApplyMoves(Rewriter& b, UOp sink, const std::vector<Move>& moves);

// Splits the ranges of a kernel for a workgroup's threads; the moves of one range stand in their
// order from the outermost part to the lanes. Every root then closes the same GROUP and LOCAL
// ranges, at least one. Ranges with LOCAL parts on the same axis are iterated by the same threads:
// no LOAD, STORE or fold depends on two of them. What the amounts do not divide is rounded up:
// loads and stores of the iterations that the kernel does not have are gated, folds skip them. A
// store that does not depend on an axis is done by its first thread. `unit` has the instructions of
// TENSORCORE.
absl::StatusOr<UOp> ApplyWorkgroupMoves(Rewriter& b, UOp sink, const std::vector<Move>& moves,
                                        MatrixUnit unit);

}  // namespace telegrad
