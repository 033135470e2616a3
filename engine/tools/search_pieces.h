// telegrad-opt --search: BEAM search for the moves of kernels, on the device that programs run on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

// Opens the device for a target; telegrad-opt's main gives the processor's.
using OpenDevice = std::function<absl::StatusOr<std::unique_ptr<Device>>(const Target&)>;

// Two lines for each kernel: what was measured, and the list found, which --moves takes.
//
//   kernel0: heuristic 0.512 ms, best 0.431 ms, 1.19 times as fast, 212 programs in 4 rounds
//   moves: UPCAST r0 12, VECTORIZE r1 16, THREAD r0, OUTER r0
//
// `seconds` are for each of them.
absl::StatusOr<std::string> SearchPieces(const std::vector<Piece>& pieces, const Target& target,
                                         double seconds, const OpenDevice& open, Budget* budget);

}  // namespace telegrad
