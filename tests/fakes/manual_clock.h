// A clock that a test advances. Thread-safe.
#pragma once

#include <atomic>

#include "engine/base/clock.h"

namespace telegrad::fakes {

class ManualClock final : public Clock {
 public:
  int64_t Ns() const override { return ns_.load(); }
  void Advance(int64_t ns) { ns_.fetch_add(ns); }

 private:
  std::atomic<int64_t> ns_{1'000'000'000};
};

}  // namespace telegrad::fakes
