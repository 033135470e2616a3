// The predicted time of launches and copies on the threads of a CPU.
#pragma once

#include <algorithm>
#include <cmath>

#include "devices/api/device.h"
#include "devices/cpu/rates.h"
#include "engine/base/status.h"

namespace telegrad {

inline constexpr double kStepMicros = 0.02;  // of a command, whatever it does
inline constexpr double kQuickMicros = 10;   // below, waking a thread for it takes longer

// On one thread.
inline double PredictedMicros(double flops, double bytes) {
  return 1e6 * std::max(flops / ThreadRates().launch_flops(), bytes / ThreadRates().bytes);
}

// A CPU's threads share the grid's x, which is all that it has of parallel work.
inline absl::Status CheckHostGrid(const Launch& launch) {
  if (launch.grid.y == 1 && launch.grid.z == 1) return absl::OkStatus();
  return InvalidArgument("a grid of ", launch.grid.y, " x ", launch.grid.z,
                         " in y and z; a CPU has one of x alone");
}

// Of `threads` - 1. Waking one takes some 25 microseconds: below 20 it is not worth it, and each
// gets at least 10.
inline int HelpersWorthWaking(const Launch& launch, int threads) {
  constexpr double kWorthSplitting = 20, kWorthAThread = 10;
  const double time = PredictedMicros(launch.flops, launch.bytes);
  if (!(time >= kWorthSplitting)) return 0;
  const double most = static_cast<double>(std::min<int64_t>(threads, launch.grid.x));
  return std::max(0, static_cast<int>(std::min(most, std::floor(time / kWorthAThread))) - 1);
}

}  // namespace telegrad
