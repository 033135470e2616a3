// The clock and the median that benchmarks use.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace telegrad::bench {

inline double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace telegrad::bench
