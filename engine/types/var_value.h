// What a run gives for a variable of a graph.
#pragma once

#include <compare>
#include <cstdint>

namespace telegrad {

struct VarValue {
  int64_t id = 0;  // of the VAR
  int64_t value = 0;
  friend auto operator<=>(const VarValue&, const VarValue&) = default;
};

}  // namespace telegrad
