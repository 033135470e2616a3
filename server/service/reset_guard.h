// Closes connections whose calls are reset unanswered, one after another (CVE-2023-44487). The
// transport allocates some 24 KB for such a call until its end is handled, and meanwhile reads
// faster than it handles ends, so closing the connection is the only bound.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "server/admin/limited_log.h"

namespace telegrad {

// Closes the connection of this process whose other end is at `peer`, an address as gRPC writes it;
// false if there is none. Unix sockets have no such address.
bool HangUp(std::string_view peer);

// Thread-safe.
class ResetGuard {
 public:
  // `most` in a second of one connection; 0: any number.
  explicit ResetGuard(int64_t most, std::function<bool(std::string_view)> hang_up = &HangUp,
                      const Clock* clock = Clock::Steady());

  // A call of the connection from `peer` was reset before anything was answered.
  void Count(const std::string& peer);

 private:
  const int64_t most_;
  const std::function<bool(std::string_view)> hang_up_;
  const Clock* const clock_;
  LimitedLog log_;
  Mutex mutex_;
  int64_t second_ TG_GUARDED_BY(mutex_);  // when the one that is counted began
  absl::flat_hash_map<std::string, int64_t> resets_ TG_GUARDED_BY(mutex_);  // in it, by peer
};

}  // namespace telegrad
