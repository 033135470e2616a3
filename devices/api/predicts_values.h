// A loaded tensor graph with variables, of a device that predicts what runs take.
#pragma once

#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/types/form_cost.h"
#include "engine/types/var_value.h"

namespace telegrad {

class PredictsValues {
 public:
  virtual ~PredictsValues() = default;
  // For these values, and for those that the device has the same form for, which it compiles now if
  // need be. Waits for the device. nullopt: it predicts nothing. The error is that of a run with
  // the values.
  virtual absl::StatusOr<std::optional<FormCost<GraphCost>>> Predict(
      std::span<const VarValue> values) const = 0;
};

}  // namespace telegrad
