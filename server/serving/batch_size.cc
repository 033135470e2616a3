#include "server/serving/batch_size.h"

#include <algorithm>
#include <vector>

namespace telegrad {
namespace {

constexpr int64_t kOld = 7, kNew = 1;  // weights of the mean
// Of sizes with nearly the same rate, the smallest answers its requests first. Where a batch is so
// short that the work beside the device counts, the largest leaves the least of that.
// The usual one stays while it is nearly as good: where sizes alternate, a request waits for more
// rows than with any of them.
constexpr double kAsGood = 0.965, kStillAsGood = 0.96;
constexpr int64_t kShortNs = 1'000'000;
// Where single rows reach less than that of the best rate, sizes between are not tried; nor is a
// size tried again whose rate was so much lower.
constexpr double kWorthTrying = 0.7, kWorthTryingAgain = 0.9;

constexpr int64_t kOldNs = 300'000'000'000;  // after which a time is learned again,
constexpr int64_t kRare = 2000;              // but for each such time at most once in so many

struct Option {
  const BatchSize* size;
  size_t requests = 0;
  double rate = 0;  // rows that are no padding in a nanosecond; 0: unknown
};

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

bool LearnedTime::IsOld(int64_t now_ns) const {
  return now_ns - learned_ns() > std::max(kOldNs, kRare * ns());
}

BatchChoice ChooseBatch(std::span<const BatchSize> sizes, std::span<const int64_t> rows) {
  // Sizes that have room for the first request, up to the first with room for all.
  std::vector<Option> options;
  for (const BatchSize& size : sizes) {
    if (size.rows < rows.front()) continue;
    Option& option = options.emplace_back(Option{.size = &size});
    int64_t taken = 0;
    while (option.requests < rows.size() && taken + rows[option.requests] <= size.rows) {
      taken += rows[option.requests++];
    }
    if (size.ns > 0) option.rate = static_cast<double>(taken) / static_cast<double>(size.ns);
    if (option.requests == rows.size()) break;
  }
  const Option& smallest = options.front();
  const Option& largest = options.back();
  if (options.size() == 1 || largest.rate == 0) return {.requests = largest.requests};
  if (smallest.rate == 0 && smallest.size->made) return {.requests = smallest.requests};
  if (smallest.rate == 0) return {.requests = largest.requests, .wanted = smallest.size->rows};

  double highest = 0;
  for (const Option& option : options) highest = std::max(highest, option.rate);
  BatchChoice choice;
  for (const Option& option : options) {
    if (option.rate < kAsGood * highest) continue;
    choice.requests = option.requests;
    choice.usual = option.size->rows;
    if (option.size->ns >= kShortNs) break;
  }
  for (const Option& option : options) {
    if (!option.size->usual || option.rate < kStillAsGood * highest) continue;
    choice.requests = option.requests;
    choice.usual = option.size->rows;
  }
  for (const Option& option : options) {
    if (option.rate > 0) {
      const bool again = option.size->stale && option.rate >= kWorthTryingAgain * highest;
      if (again) return {.requests = option.requests};
    } else if (smallest.rate >= kWorthTrying * highest) {
      if (option.size->made) return {.requests = option.requests};
      choice.wanted = option.size->rows;
    }
  }
  return choice;
}

}  // namespace telegrad
