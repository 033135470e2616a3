// Limits the time of a resource that a tenant may use: a rate for each second, and a burst of what
// it has saved up. This is a token bucket whose level may fall below 0, because requests are
// admitted by their predicted time as long as anything is left: the last one admitted may be longer
// than the rest, or than the whole burst.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class RateLimit {
 public:
  // Errors call the limits `rate` and `burst`, with the tenant, and end with `remedy`. Both are in
  // milliseconds: of use in each second, and at most saved.
  RateLimit(std::string rate, int64_t per_second_ms, std::string burst, int64_t burst_ms,
            std::string remedy);

  // Takes what is predicted, if anything is left. RESOURCE_EXHAUSTED names both limits and what has
  // been used beyond them, and says when to try again (see RetryAfterMs).
  absl::Status Take(int64_t predicted_ns, int64_t now_ns);
  // Corrects an admitted request of `predicted_ns` to the measured time.
  void Correct(int64_t predicted_ns, int64_t measured_ns);

  // Changes the limits. Use so far counts against the new burst: a debt remains, and changing a
  // limit back and forth gains nothing.
  void Limit(int64_t per_second_ms, int64_t burst_ms, std::string remedy, int64_t now_ns);

  // What was used of the burst and not come back since, also beyond it: to be used of another one.
  int64_t used_ns(int64_t now_ns) const;
  void Use(int64_t used_ns, int64_t now_ns);

  // Time used beyond what the rate has granted, in milliseconds; at least -`burst_ms`.
  int64_t overdrawn_ms(int64_t now_ns) const;

 private:
  double LevelAt(int64_t now_ns) const TG_REQUIRES(mutex_);
  double burst_ns() const TG_REQUIRES(mutex_);

  const std::string rate_, burst_;
  mutable Mutex mutex_;
  std::string remedy_ TG_GUARDED_BY(mutex_);
  int64_t per_second_ms_ TG_GUARDED_BY(mutex_);
  int64_t burst_ms_ TG_GUARDED_BY(mutex_);
  double level_ns_ TG_GUARDED_BY(mutex_);
  int64_t at_ns_ TG_GUARDED_BY(mutex_) = 0;  // when it was that; 0: not used so far
};

// Tells the client to retry the request after this time, as google.rpc.RetryInfo does.
absl::Status WithRetryAfter(absl::Status status, int64_t ms);
std::optional<int64_t> RetryAfterMs(const absl::Status& status);

}  // namespace telegrad
