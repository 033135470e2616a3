// The text that telegrad-opt reads and prints: one piece (a graph or a program), or several, each
// below a line that names it, says what its arguments are bound to, and where it comes from:
//
//   --- kernel1(slot1, temporary0): stores
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

// `only` >= 0 reads that piece alone. INVALID_ARGUMENT names the line of the whole text.
absl::StatusOr<std::vector<Piece>> ParsePieces(std::string_view text, int64_t only);

std::string PrintPiece(const Piece& piece);                 // without its header
std::string PrintPieces(const std::vector<Piece>& pieces);  // headers where there are several

}  // namespace telegrad
