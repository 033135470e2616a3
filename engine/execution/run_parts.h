// What a run does of the kernels of a general form: numbers that its launches take from the scalars
// of the submission, so that what is encoded serves all values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "devices/api/device.h"
#include "engine/ir/graph.h"
#include "engine/rewrite/generalize.h"
#include "engine/types/var_value.h"

namespace telegrad {

// A kernel that does less where the values of variables are small.
struct VaryingKernel {
  size_t kernel = 0;                       // which it is of the plan's
  double least_share = 1;                  // of its work, that is done with the least values
  std::optional<FrozenGraph> groups = {};  // see RunGroups; of the values of the run
};

// Of a general form.
struct RunParts {
  std::vector<VarRange> variables;
  std::vector<VaryingKernel> kernels;  // ascending

  // Has the launch take the scalars of that kernel, if it varies.
  void Mark(size_t kernel, Launch* launch) const;
  // The scalars of a run with these values, which are in the order of the variables; of one that
  // does all, where there are none. `iterations`: by kernel of the plan.
  std::vector<uint64_t> Scalars(std::span<const VarValue> values,
                                std::span<const int64_t> iterations) const;
};

}  // namespace telegrad
