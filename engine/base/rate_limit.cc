#include "engine/base/rate_limit.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/cord.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Its value is the number in decimal; the services make the wire's form of it.
constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace

RateLimit::RateLimit(RateUnit unit, std::string rate, int64_t per_second, std::string burst,
                     int64_t burst_limit, std::string remedy)
    : unit_(unit),
      rate_(std::move(rate)),
      burst_(std::move(burst)),
      remedy_(std::move(remedy)),
      per_second_(per_second),
      burst_limit_(burst_limit),
      level_(burst_uses()) {}

double RateLimit::burst_uses() const { return static_cast<double>(burst_limit_) * unit_.uses; }

double RateLimit::LevelAt(int64_t now_ns) const {
  if (at_ns_ == 0) return level_;
  const auto passed = static_cast<double>(std::max<int64_t>(now_ns - at_ns_, 0));
  return std::min(level_ + passed / 1e9 * static_cast<double>(per_second_) * unit_.uses,
                  burst_uses());
}

absl::Status RateLimit::Take(int64_t predicted, int64_t now_ns) {
  const MutexLock lock(mutex_);
  level_ = LevelAt(now_ns);
  at_ns_ = std::max(at_ns_, now_ns);
  if (level_ > 0) {
    level_ -= static_cast<double>(predicted);
    return absl::OkStatus();
  }
  const double over = -level_ / unit_.uses;
  if (per_second_ == 0 || burst_limit_ == 0) {
    return ResourceExhausted(rate_, " is limited to ", per_second_, " ", unit_.name,
                             " in each second, ", burst_, " to ", burst_limit_, " ", unit_.name,
                             ": nothing is left; ", remedy_);
  }
  const auto wait_ms = static_cast<int64_t>(
      std::min(std::floor(over * 1e3 / static_cast<double>(per_second_)) + 1, 1e15));
  return WithRetryAfter(
      ResourceExhausted(rate_, " is limited to ", per_second_, " ", unit_.name, " in each second, ",
                        burst_, " to ", burst_limit_, " ", unit_.name, ": ",
                        static_cast<int64_t>(std::ceil(std::min(over, 9e18))), " ", unit_.name,
                        " more have been used; try again in ", wait_ms, " ms, or ", remedy_),
      wait_ms);
}

void RateLimit::Correct(int64_t predicted, int64_t measured) {
  const MutexLock lock(mutex_);
  level_ += static_cast<double>(predicted) - static_cast<double>(measured);
}

void RateLimit::Limit(int64_t per_second, int64_t burst_limit, std::string remedy, int64_t now_ns) {
  const MutexLock lock(mutex_);
  const double used = burst_uses() - LevelAt(now_ns);
  at_ns_ = std::max(at_ns_, now_ns);
  per_second_ = per_second;
  burst_limit_ = burst_limit;
  remedy_ = std::move(remedy);
  level_ = burst_uses() - used;
}

int64_t RateLimit::used(int64_t now_ns) const {
  const MutexLock lock(mutex_);
  return static_cast<int64_t>(std::min(std::ceil(burst_uses() - LevelAt(now_ns)), 9e18));
}

void RateLimit::Use(int64_t used, int64_t now_ns) {
  const MutexLock lock(mutex_);
  level_ = LevelAt(now_ns) - static_cast<double>(used);
  at_ns_ = std::max(at_ns_, now_ns);
}

int64_t RateLimit::overdrawn(int64_t now_ns) const {
  const MutexLock lock(mutex_);
  return static_cast<int64_t>(-LevelAt(now_ns) / unit_.uses);
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
