// A plan: what a Builder makes. A tensor-level graph whose PARAM slots are described one by one,
// ready to be sent to a server, and rerun with other buffers as often as one likes.
//
// Contract: a PARAM node always means the slot's content before the run; the STOREs of the graph
// take effect as if all at once at its end. A slot is stored to at most once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/frontend/host_tensor.h"
#include "engine/ir/graph.h"

namespace telegrad {

enum class SlotRole : uint8_t {
  kInput,   // bound anew for each run
  kState,   // lives on the device between runs: parameters, optimizer state
  kOutput,  // written by the run
};
std::string_view Name(SlotRole role);

// How a state slot is filled before the first run. Values depend on the seed and the element's
// index only, so they are the same on every machine.
struct Init {
  enum Kind : uint8_t { kNone, kConstant, kUniform };
  Kind kind = kNone;
  double low = 0;   // the constant, or the inclusive lower end
  double high = 0;  // exclusive
  uint64_t seed = 0;

  static Init Constant(double value) { return {kConstant, value, value, 0}; }
  static Init Uniform(double low, double high, uint64_t seed) {
    return {kUniform, low, high, seed};
  }
};

struct Slot {
  std::string name;  // unique within a plan
  DType dtype = DType::kVoid;
  Shape shape;
  SlotRole role = SlotRole::kInput;
  Init init;
};

// A number that each run chooses.
struct PlanVariable {
  std::string name;  // unique within a plan
  int64_t id = 0;    // of its VAR
  int64_t min = 0, max = 0, multiple = 1;
};

struct Plan {
  FrozenGraph graph;        // the root is a SINK of STOREs
  std::vector<Slot> slots;  // index i describes PARAM slot i
  std::vector<PlanVariable> variables;

  // The index of the slot with this name, or -1.
  int Find(std::string_view name) const;
};

// The first content of a slot. FAILED_PRECONDITION if its init is kNone.
absl::StatusOr<HostTensor> InitialValue(const Slot& slot);

}  // namespace telegrad
