// A tenant, as seen by everything that divides a common resource. Two tasks belong to one tenant if
// they have the same Share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace telegrad {

// The largest weight. With a larger one, other tenants would wait too long; use a limit instead.
inline constexpr int64_t kMaxWeight = 10'000;

// A tenant of weight 3 gets three times as much as one of 1. The weight may change at any time;
// users read it again at every turn.
class Share {
 public:
  Share() = default;
  explicit Share(std::string name, int64_t weight = 1) : name_(std::move(name)) {
    SetWeight(weight);
  }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  const std::string& name() const { return name_; }
  int64_t weight() const { return weight_.load(std::memory_order_relaxed); }
  // Brought within 1 and kMaxWeight.
  void SetWeight(int64_t weight) {
    weight_.store(std::clamp<int64_t>(weight, 1, kMaxWeight), std::memory_order_relaxed);
  }

 private:
  const std::string name_;
  std::atomic<int64_t> weight_{1};
};

}  // namespace telegrad
