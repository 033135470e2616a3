// Limits how much of something a tenant may use, for example time of a device: a rate for each
// second, and a burst of what it has saved up. This is a token bucket whose level may fall below 0,
// because requests are admitted by their predicted use as long as anything is left: the last one
// admitted may use more than the rest, or than the whole burst.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace telegrad {

// In which the limits are set, and how many units of use each of them has.
struct RateUnit {
  std::string_view name;
  double uses;
};
inline constexpr RateUnit kRateOfTime = {"ms", 1e6};  // use is in nanoseconds
inline constexpr RateUnit kRateOfBytes = {"bytes", 1};
inline constexpr RateUnit kRateOfRequests = {"requests", 1};

// Thread-safe.
class RateLimit {
 public:
  // Errors call the limits `rate` and `burst`, with the tenant, and end with `remedy`. Both are in
  // the unit: of use in each second, and at most saved.
  RateLimit(RateUnit unit, std::string rate, int64_t per_second, std::string burst,
            int64_t burst_limit, std::string remedy);

  // Takes what is predicted, if anything is left. RESOURCE_EXHAUSTED names both limits and what has
  // been used beyond them, and says when to try again (see RetryAfterMs).
  absl::Status Take(int64_t predicted, int64_t now_ns);
  // Corrects an admitted request from its predicted to its measured use.
  void Correct(int64_t predicted, int64_t measured);

  // Changes the limits. Use so far counts against the new burst: a debt remains, and changing a
  // limit back and forth gains nothing.
  void Limit(int64_t per_second, int64_t burst_limit, std::string remedy, int64_t now_ns);

  // What was used of the burst and not come back since, also beyond it: to be used of another one.
  int64_t used(int64_t now_ns) const;
  void Use(int64_t used, int64_t now_ns);

  // Use beyond what the rate has granted, in the unit of the limits; at least minus the burst.
  int64_t overdrawn(int64_t now_ns) const;

 private:
  double LevelAt(int64_t now_ns) const TG_REQUIRES(mutex_);
  double burst_uses() const TG_REQUIRES(mutex_);

  const RateUnit unit_;
  const std::string rate_, burst_;
  mutable Mutex mutex_;
  std::string remedy_ TG_GUARDED_BY(mutex_);
  int64_t per_second_ TG_GUARDED_BY(mutex_);
  int64_t burst_limit_ TG_GUARDED_BY(mutex_);
  double level_ TG_GUARDED_BY(mutex_);       // what is left, in units of use
  int64_t at_ns_ TG_GUARDED_BY(mutex_) = 0;  // when it was that; 0: not used so far
};

// Tells the client to retry the request after this time, as google.rpc.RetryInfo does.
absl::Status WithRetryAfter(absl::Status status, int64_t ms);
std::optional<int64_t> RetryAfterMs(const absl::Status& status);

}  // namespace telegrad
