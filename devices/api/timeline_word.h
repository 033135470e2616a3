// A timeline as words of memory that processes share: a counter that only grows, with a bell on
// which its readers sleep. One side writes it, any number of others read it. Zeroed memory is one
// that is at 0.
//
// Nobody trusts what another process may have written: a reader that sleeps does so for a limited
// time where it cannot trust the writer to ring, and a value is compared and used for nothing else.
#pragma once

#include <atomic>
#include <cstdint>

#include "devices/api/futex.h"

namespace telegrad {

struct TimelineWord {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> bell;      // a futex; changes with the value
  std::atomic<uint32_t> sleepers;  // readers on the bell

  bool Reached(uint64_t point) const { return value.load(std::memory_order_acquire) >= point; }

  // By the writer: reaches `point` and all below. Enters the kernel for sleepers only.
  void Signal(uint64_t point) {
    value.store(point);
    Ring();
  }
  // Wakes whoever sleeps, to look again.
  void Ring() {
    bell.fetch_add(1);
    if (sleepers.load() != 0) FutexWake(bell);
  }
  // Sleeps until the point is reached, for at most `ns`, or less for no reason.
  void Sleep(uint64_t point, int64_t ns = kForeverNs) {
    const uint32_t rung = bell.load();
    sleepers.fetch_add(1);
    if (!Reached(point)) FutexWait(bell, rung, ns);
    sleepers.fetch_sub(1);
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace telegrad
