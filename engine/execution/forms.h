// The forms of a graph with variables. One general form serves all values, with loops that end at
// the sizes of the run; or, where that would need much memory or do much more than is needed (see
// whole_form.h), one for each range from the least value up to a power of two. Values that runs
// have again and again (value_uses.h) get specialized forms, in which sizes are constants.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/rewrite/generalize.h"
#include "engine/types/var_value.h"

namespace telegrad {

// The condition that a form places on a variable, by id. A run may use the form if every guard
// holds.
struct Guards {
  std::vector<VarRange> ranges;
  bool general = false;  // one form for all of the ranges; else they are single values

  friend bool operator==(const Guards&, const Guards&) = default;
};

// Whether `values`, sorted by id, are of these variables and in their ranges.
bool Holds(std::span<const VarRange> ranges, std::span<const VarValue> values);

Guards Specialized(std::span<const VarValue> values);

// `sizes` as SizesOf; a variable that is none of them has its whole range: it costs a general
// kernel nothing.
Guards Ranged(std::span<const VarRange> declared, std::span<const int64_t> sizes,
              std::span<const VarValue> values);
Guards Whole(std::span<const VarRange> declared);

}  // namespace telegrad
