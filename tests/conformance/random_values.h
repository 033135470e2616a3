// Values of the variables of a graph.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/rewrite/generalize.h"
#include "engine/types/var_value.h"

namespace telegrad::testing {

// Some that the ranges, of not many values each, allow; sorted.
inline std::vector<VarValue> RandomValues(std::span<const VarRange> ranges, std::mt19937_64& rng) {
  std::vector<VarValue> out;
  for (const VarRange& r : ranges) {
    int64_t value = r.min;
    while (value % r.multiple != 0) ++value;
    const int64_t steps = (r.max - value) / r.multiple;
    if (steps > 0) {
      value += static_cast<int64_t>(rng() % static_cast<uint64_t>(steps + 1)) * r.multiple;
    }
    out.push_back({r.id, value});
  }
  return out;
}

}  // namespace telegrad::testing
