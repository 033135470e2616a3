// Bounded spinning: a spinning thread reacts within 0.3 us, waking a sleeping thread takes 25 us.
#pragma once

#include <immintrin.h>

#include <chrono>

namespace telegrad {

inline constexpr std::chrono::microseconds kSpinTime{40};

// Spins until `done()`, at most kSpinTime. Whether it is done.
template <typename Done>
bool SpinUntil(Done done) {
  if (done()) return true;
  const auto until = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 16; ++i) {
      _mm_pause();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace telegrad
