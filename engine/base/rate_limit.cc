#include "engine/base/rate_limit.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/cord.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr double kNsPerMs = 1e6;
// Its value is the number in decimal; the services make the wire's form of it.
constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace

RateLimit::RateLimit(std::string rate, int64_t per_second_ms, std::string burst, int64_t burst_ms,
                     std::string remedy)
    : rate_(std::move(rate)),
      burst_(std::move(burst)),
      remedy_(std::move(remedy)),
      per_second_ms_(per_second_ms),
      burst_ms_(burst_ms),
      level_ns_(burst_ns()) {}

double RateLimit::burst_ns() const { return static_cast<double>(burst_ms_) * kNsPerMs; }

double RateLimit::LevelAt(int64_t now_ns) const {
  if (at_ns_ == 0) return level_ns_;
  const auto passed = static_cast<double>(std::max<int64_t>(now_ns - at_ns_, 0));
  return std::min(level_ns_ + passed * static_cast<double>(per_second_ms_) / 1e3, burst_ns());
}

absl::Status RateLimit::Take(int64_t predicted_ns, int64_t now_ns) {
  const MutexLock lock(mutex_);
  level_ns_ = LevelAt(now_ns);
  at_ns_ = std::max(at_ns_, now_ns);
  if (level_ns_ > 0) {
    level_ns_ -= static_cast<double>(predicted_ns);
    return absl::OkStatus();
  }
  const double over_ms = -level_ns_ / kNsPerMs;
  if (per_second_ms_ == 0 || burst_ms_ == 0) {
    return ResourceExhausted(rate_, " is limited to ", per_second_ms_, " ms in each second, ",
                             burst_, " to ", burst_ms_, " ms: nothing is left; ", remedy_);
  }
  const auto wait_ms = static_cast<int64_t>(
      std::min(std::floor(over_ms * 1e3 / static_cast<double>(per_second_ms_)) + 1, 1e15));
  return WithRetryAfter(
      ResourceExhausted(rate_, " is limited to ", per_second_ms_, " ms in each second, ", burst_,
                        " to ", burst_ms_, " ms: ", static_cast<int64_t>(std::ceil(over_ms)),
                        " ms more have been used; try again in ", wait_ms, " ms, or ", remedy_),
      wait_ms);
}

void RateLimit::Correct(int64_t predicted_ns, int64_t measured_ns) {
  const MutexLock lock(mutex_);
  level_ns_ += static_cast<double>(predicted_ns - measured_ns);
}

void RateLimit::Limit(int64_t per_second_ms, int64_t burst_ms, std::string remedy, int64_t now_ns) {
  const MutexLock lock(mutex_);
  const double used_ns = burst_ns() - LevelAt(now_ns);
  at_ns_ = std::max(at_ns_, now_ns);
  per_second_ms_ = per_second_ms;
  burst_ms_ = burst_ms;
  remedy_ = std::move(remedy);
  level_ns_ = burst_ns() - used_ns;
}

int64_t RateLimit::used_ns(int64_t now_ns) const {
  const MutexLock lock(mutex_);
  return static_cast<int64_t>(std::min(std::ceil(burst_ns() - LevelAt(now_ns)), 9e18));
}

void RateLimit::Use(int64_t used_ns, int64_t now_ns) {
  const MutexLock lock(mutex_);
  level_ns_ = LevelAt(now_ns) - static_cast<double>(used_ns);
  at_ns_ = std::max(at_ns_, now_ns);
}

int64_t RateLimit::overdrawn_ms(int64_t now_ns) const {
  const MutexLock lock(mutex_);
  return static_cast<int64_t>(-LevelAt(now_ns) / kNsPerMs);
}

absl::Status WithRetryAfter(absl::Status status, int64_t ms) {
  status.SetPayload(kRetryInfo, absl::Cord(std::to_string(ms)));
  return status;
}

std::optional<int64_t> RetryAfterMs(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryInfo);
  if (!payload) return std::nullopt;
  const std::string text(*payload);
  int64_t ms = 0;
  std::from_chars(text.data(), text.data() + text.size(), ms);
  return ms;
}

}  // namespace telegrad
