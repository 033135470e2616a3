// The smallest graph and the smallest program around each op. The reference evaluators and the
// renderer are run on them to see what they cover, and docs/ops.md shows the op's line.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/op.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

struct OpExample {
  Op op;
  Level level;  // tensor or program
  Piece piece;
};

// One for each op and level that allows it. An error is a mistake in this file.
absl::StatusOr<std::vector<OpExample>> AllOpExamples();

}  // namespace telegrad
