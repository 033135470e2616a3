// Graphs captured from tinygrad, see tests/data/tinygrad/NOTICE: each with the bytes of its slots
// before the run and, where it stores, after tinygrad's own CPU backend ran it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/types/dtype.h"
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
};

// All archives under tests/data/tinygrad of the source tree, which is the working directory of
// tests; in the order of their names.
absl::StatusOr<std::vector<Capture>> ReadCaptures();

}  // namespace telegrad::testing
