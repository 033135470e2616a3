// Graphs captured from tinygrad, see tests/data/tinygrad/NOTICE: each with the bytes of its slots
// before the run and, where it stores, after tinygrad's own CPU backend ran it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/graph.h"
#include "engine/types/dtype.h"
#include "engine/types/var_value.h"
#include "telegrad/v1/graph.pb.h"

namespace telegrad::testing {

struct CapturedSlot {
  DType dtype = DType::kVoid;
  std::vector<uint8_t> before;
  std::optional<std::vector<uint8_t>> after;  // nullopt: the graph does not store to it
};

struct Capture {
  std::string name;  // group/program
  v1::Graph graph;
  std::vector<int64_t> variables;  // by VAR id
  std::vector<CapturedSlot> slots;

  std::vector<std::vector<uint8_t>> SlotsBefore() const;
  std::vector<VarValue> VarValues() const;
};

// All archives under tests/data/tinygrad of the source tree, which is the working directory of
// tests; in the order of their names.
absl::StatusOr<std::vector<Capture>> ReadCaptures();

// What differs between the slots after a run of the capture's graph `root` and what tinygrad left,
// or "". Integers and bools must be equal, and slots that the graph does not store to unchanged. A
// float may differ by a tolerance that the coarsest float type among the graph's nodes decides:
// tinygrad's CPU backend computes narrow types in f32 and rounds only what it stores, where each op
// of ours rounds once, so one narrow value on the way is enough. The tolerance is relative to the
// element, or to an eighth of the largest element of its slot where that is more (sums cancel). It
// is `slack` times the usual one: compiled sums add in another order.
std::string Difference(const Capture& capture, UOp root,
                       const std::vector<std::vector<uint8_t>>& slots, double slack = 1);

}  // namespace telegrad::testing
