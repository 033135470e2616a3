// The passing of time, for what ends by itself: leases and deadlines. Tests turn a clock of their
// own by hand.
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

// Time that the calling thread has been given of a processor.
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
