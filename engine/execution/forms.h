// The forms of a graph with variables. The first values that it is run with get specialized forms,
// in which sizes are constants and kernels are as fast as possible. All other values share general
// forms, each for the range from the least value up to a power of two. A general kernel works on
// the bounds of its sizes, so such a range at most doubles the work along an axis.
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
