// The value of a variable of a graph in one run.
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
