// Which values of a graph's variables its runs have often.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/types/var_value.h"

namespace telegrad {

// Bounded: of values without end, those that come again and again are remembered.
class ValueUses {
 public:
  // One more run with these values.
  void Add(const std::vector<VarValue>& values);
  // Whether runs had them several times, and of the latest runs a good part: then a form for these
  // values alone is worth compiling. Values that change from run to run never are.
  bool AreFrequent(const std::vector<VarValue>& values) const;

 private:
  std::map<std::vector<VarValue>, int64_t> runs_;
  int64_t all_ = 0;
};

}  // namespace telegrad
