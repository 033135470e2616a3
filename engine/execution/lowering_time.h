// When the kernels of a graph were lowered, for traces.
#pragma once

#include <algorithm>
#include <cstdint>

namespace telegrad {

// By the steady clock, from the beginning of the first kernel to the end of the last one; code is
// made for others meanwhile. Empty where none was lowered.
struct LoweringTime {
  int64_t begin_ns = 0, end_ns = 0;

  bool empty() const { return end_ns == 0; }
  void Cover(const LoweringTime& other) {
    if (other.empty()) return;
    begin_ns = empty() ? other.begin_ns : std::min(begin_ns, other.begin_ns);
    end_ns = std::max(end_ns, other.end_ns);
  }
};

}  // namespace telegrad
