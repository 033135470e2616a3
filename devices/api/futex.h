// Sleeping on a word of memory that processes share; see futex(2).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace telegrad {

inline constexpr int64_t kForeverNs = -1;

// Returns when somebody wakes sleepers on the word, at once if it is not `value`, after `ns`, or
// for no reason.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t value, int64_t ns) {
  const timespec time{ns / 1'000'000'000, static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value,
          ns == kForeverNs ? nullptr : &time, nullptr, 0);
}

inline void FutexWake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace telegrad
