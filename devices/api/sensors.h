// What the hardware of a device measures of itself, for metrics: sensors.def has the figures.
#pragma once

#include <array>
#include <optional>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"

namespace telegrad {

enum class Sensor : int {
#define SENSOR(name, ...) name,
#include "devices/api/sensors.def"
#undef SENSOR
};

inline constexpr int kNumSensors = 0
#define SENSOR(...) +1
#include "devices/api/sensors.def"
#undef SENSOR
    ;

// In the units that the metrics' names say; nothing for what a device does not measure or tell.
class Readings {
 public:
  std::optional<double>& operator[](Sensor sensor) { return values_[static_cast<size_t>(sensor)]; }
  const std::optional<double>& operator[](Sensor sensor) const {
    return values_[static_cast<size_t>(sensor)];
  }

 private:
  std::array<std::optional<double>, kNumSensors> values_ = {};
};

// Thread-safe. Asks the hardware at most once a second: a page of metrics that is fetched more
// often has the readings of the last time, also while another thread asks.
class Sensors {
 public:
  explicit Sensors(const Clock* clock = Clock::Steady()) : clock_(clock) {}
  virtual ~Sensors() = default;
  Sensors(const Sensors&) = delete;
  Sensors& operator=(const Sensors&) = delete;

  Readings Read() {
    {
      const MutexLock lock(mutex_);
      const int64_t now = clock_->Ns();
      if (asking_ || (asked_ && now - asked_ns_ < kOftenNs)) return last_;
      asking_ = asked_ = true;
      asked_ns_ = now;
    }
    const Readings fresh = Ask();
    const MutexLock lock(mutex_);
    asking_ = false;
    return last_ = fresh;
  }

 private:
  static constexpr int64_t kOftenNs = 1'000'000'000;

  // One call at a time, with no lock held. What the hardware refuses is left out.
  virtual Readings Ask() = 0;

  const Clock* const clock_;
  Mutex mutex_;
  bool asking_ TG_GUARDED_BY(mutex_) = false;
  bool asked_ TG_GUARDED_BY(mutex_) = false;
  int64_t asked_ns_ TG_GUARDED_BY(mutex_) = 0;
  Readings last_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
