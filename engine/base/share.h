// A tenant, as seen by everything that divides a common resource. Two tasks belong to one tenant if
// they have the same Share.
#pragma once

#include <cstdint>
#include <string>

namespace telegrad {

struct Share {
  std::string name;
  int64_t weight = 1;  // at least 1: a tenant of weight 3 gets three times as much as one of 1
};

}  // namespace telegrad
