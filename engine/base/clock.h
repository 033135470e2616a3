// The clock of leases and deadlines. Tests replace it with a clock that they advance by hand.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace telegrad {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t Ns() const = 0;  // since some moment, never less than before; thread-safe

  static const Clock* Steady();
};

// Processor time of the calling thread.
inline int64_t ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

inline const Clock* Clock::Steady() {
  class SteadyClock final : public Clock {
    int64_t Ns() const override {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    }
  };
  static const SteadyClock clock;
  return &clock;
}

}  // namespace telegrad
