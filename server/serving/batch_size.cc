#include "server/serving/batch_size.h"

#include <algorithm>

namespace telegrad {
namespace {

constexpr int64_t kOld = 7, kNew = 1;  // weights of the mean
// The larger of two sizes with nearly the same rate leaves less work beside the device.
constexpr double kAsGood = 0.99;
// Where single rows reach less than that of the best rate, sizes between are not tried; nor is a
// size tried again whose rate was so much lower.
constexpr double kWorthTrying = 0.7, kWorthTryingAgain = 0.9;

}  // namespace

void LearnedTime::Add(int64_t ns, int64_t now_ns) {
  learned_ns_.store(now_ns, std::memory_order_relaxed);
  if (skipped_.load(std::memory_order_relaxed) > 0) {
    skipped_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  const int64_t before = this->ns();
  const int64_t mean = before == 0   ? ns
                       : ns < before ? (before + ns) / 2
                                     : (kOld * before + kNew * ns) / (kOld + kNew);
  mean_ns_.store(mean, std::memory_order_relaxed);
}

BatchChoice ChooseBatch(std::span<const BatchSize> sizes, int64_t waiting) {
  const auto rows_of = [&](const BatchSize& size) { return std::min(size.rows, waiting); };
  const auto rate_of = [&](const BatchSize& size) {
    return size.ns > 0 ? static_cast<double>(rows_of(size)) / static_cast<double>(size.ns) : 0;
  };
  const BatchSize& smallest = sizes.front();
  const BatchSize& largest = sizes.back();
  if (sizes.size() == 1 || largest.ns == 0) return {.rows = waiting};
  if (smallest.ns == 0 && smallest.made) return {.rows = rows_of(smallest)};
  if (smallest.ns == 0) return {.rows = waiting, .wanted = smallest.rows};

  double highest = 0;
  for (const BatchSize& size : sizes) highest = std::max(highest, rate_of(size));
  BatchChoice choice;
  for (const BatchSize& size : sizes) {
    if (rate_of(size) >= kAsGood * highest) choice.rows = rows_of(size);
  }
  for (const BatchSize& size : sizes) {
    if (size.ns > 0) {
      if (size.stale && rate_of(size) >= kWorthTryingAgain * highest)
        return {.rows = rows_of(size)};
    } else if (rate_of(smallest) >= kWorthTrying * highest) {
      if (size.made) return {.rows = rows_of(size)};
      choice.wanted = size.rows;
    }
  }
  return choice;
}

}  // namespace telegrad
