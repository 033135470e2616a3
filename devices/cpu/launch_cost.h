// The predicted time of launches and copies on the threads of a CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "devices/api/device.h"
#include "devices/cpu/rates.h"
#include "engine/base/status.h"

namespace telegrad {

inline constexpr double kStepMicros = 0.02;  // of a command, whatever it does
inline constexpr double kQuickMicros = 10;   // below, waking a thread for it takes longer
// A share is an estimate that a graph of a client's can make as small as it likes while all of the
// work is done, and the thread that submits may serve other clients, too.
inline constexpr double kMostQuickMicros = 1000;

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

// Of `threads` - 1, for a launch of so many workgroups that takes so long on one. Waking one takes
// some 25 microseconds: below 20 it is not worth it, and each gets at least 10.
inline int HelpersWorthWaking(double micros, int64_t groups, int threads) {
  constexpr double kWorthSplitting = 20, kWorthAThread = 10;
  if (!(micros >= kWorthSplitting)) return 0;
  const double most = static_cast<double>(std::min<int64_t>(threads, groups));
  return std::max(0, static_cast<int>(std::min(most, std::floor(micros / kWorthAThread))) - 1);
}

// What commands are predicted to take on one thread, one after the other, whatever a submission
// does of their launches.
class PredictedTimes {
 public:
  void Add(const Command& command) {
    const bool copies = command.kind == CommandKind::kCopy;
    const Launch& launch = command.launch;
    times_.push_back({copies ? PredictedMicros(0, 2.0 * static_cast<double>(command.copy.length))
                             : PredictedMicros(launch.flops, launch.bytes),
                      copies ? 1 : launch.grid.x, copies ? -1 : launch.share});
    whole_ += times_.back().micros + kStepMicros;
    varies_ |= times_.back().share >= 0;
  }

  // Whether that is less than waking a thread takes.
  bool quick(std::span<const uint64_t> scalars) const {
    if (!varies_) return whole_ < kQuickMicros;
    if (whole_ > kMostQuickMicros) return false;
    double micros = 0;
    for (const Time& time : times_) micros += MicrosOf(time, scalars) + kStepMicros;
    return micros < kQuickMicros;
  }
  // Of `threads` - 1, for that command.
  int helpers(size_t command, std::span<const uint64_t> scalars, int threads) const {
    const Time& time = times_[command];
    return HelpersWorthWaking(MicrosOf(time, scalars), time.groups, threads);
  }

 private:
  struct Time {
    double micros = 0;
    int64_t groups = 1;
    int32_t share = -1;  // as a Launch's
  };
  static double MicrosOf(const Time& time, std::span<const uint64_t> scalars) {
    return time.micros * Launch::PartOf(time.share, scalars);
  }

  std::vector<Time> times_;  // by command
  double whole_ = 0;
  bool varies_ = false;
};

}  // namespace telegrad
