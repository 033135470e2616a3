// The differential oracle: scheduled and lowered programs against the evaluation node by node.
#pragma once

#include <span>

#include "engine/ir/program.h"
#include "engine/schedule/schedule.h"

namespace telegrad::fuzz {

// Runs both on the same made-up contents. False where nothing was compared: the graph is too large
// to interpret, or none of its outputs has one exact value. A difference is a finding and ends the
// process.
bool CompareWithReference(UOp sink, const Schedule& schedule, std::span<const Program> programs);

}  // namespace telegrad::fuzz
