// A plan: what a Builder makes. A tensor-level graph whose PARAM slots are described one by one,
// ready to be sent to a server, and rerun with other buffers as often as one likes.
//
// Contract: a PARAM node always means the slot's content before the run, an AFTER of it what the
// STOREs that it names have left. Several STOREs to a slot are in order, each into a view of the
// AFTER of the one before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/frontend/tensor/host_tensor.h"
#include "engine/ir/graph.h"

namespace telegrad {

enum class SlotRole : uint8_t {
  kInput,   // bound anew for each run, or brought along by the plan
  kState,   // lives on the device between runs: parameters, optimizer state
  kOutput,  // written by the run
};
std::string_view Name(SlotRole role);

// How a state slot is filled before the first run. Values depend on the seed and the element's
// index only, so they are the same on every machine.
struct Init {
  enum Kind : uint8_t { kNone, kConstant, kUniform, kNormal };
  Kind kind = kNone;
  double low = 0;   // the constant, the inclusive lower end, or the mean
  double high = 0;  // exclusive, or the standard deviation
  uint64_t seed = 0;

  static Init Constant(double value) { return {kConstant, value, value, 0}; }
  static Init Uniform(double low, double high, uint64_t seed) {
    return {kUniform, low, high, seed};
  }
  // Of f64 logarithms and cosines, whose last digit is the C library's.
  static Init Normal(double mean, double deviation, uint64_t seed) {
    return {kNormal, mean, deviation, seed};
  }
};

struct Slot {
  std::string name;  // unique within a plan
  DType dtype = DType::kVoid;
  Shape shape;
  SlotRole role = SlotRole::kInput;
  Init init;
  // The content of an input that the plan brings along, else null; a run may bind another one.
  std::shared_ptr<const HostTensor> content = nullptr;
};

// A number that each run chooses.
struct PlanVariable {
  std::string name;  // unique within a plan
  int64_t id = 0;    // of its VAR
  int64_t min = 0, max = 0, multiple = 1;
};

struct Plan {
  FrozenGraph graph;                    // the root is a SINK of STOREs
  std::vector<Slot> slots;              // index i describes PARAM slot i
  std::vector<PlanVariable> variables;  // that the graph uses

  // The index of the slot with this name, or -1.
  int Find(std::string_view name) const;
};

// The first content of a slot. FAILED_PRECONDITION if it has neither content nor init.
absl::StatusOr<HostTensor> InitialValue(const Slot& slot);

}  // namespace telegrad
