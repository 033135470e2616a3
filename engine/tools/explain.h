// Why rules do or do not match.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

// What the rows that `rules` names say to the nodes of `piece`. `rules` is a table's name,
// "algebra", or one row of it by its line, "algebra:107". `node` is a label of the printed piece;
// without one, every node is explained whose op is the pattern's.
absl::StatusOr<std::string> ExplainRules(const Piece& piece, std::string_view rules,
                                         std::optional<uint32_t> node, Budget* budget);

}  // namespace telegrad
