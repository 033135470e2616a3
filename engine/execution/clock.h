// Time spent, for statistics.
#pragma once

#include <chrono>
#include <cstdint>

namespace telegrad {

class Stopwatch {
 public:
  uint64_t ns() const {
    const auto passed = std::chrono::steady_clock::now() - start_;
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace telegrad
