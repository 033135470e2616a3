#include "server/serving/batch_size.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace telegrad {
namespace {

constexpr double kOfShorter = 0.25, kOfLonger = 0.125, kAfterLong = 0.5;  // weights
constexpr int kMostCounted = 1'000'000;
// Of sizes with nearly the same rate, the smallest answers its requests first. Where a batch is so
// short that the work beside the device counts, the largest leaves the least of that.
// The usual one stays while it is nearly as good: where sizes alternate, a request waits for more
// rows than with any of them. One that is larger than the one that would be chosen has no other
// merit than that.
constexpr double kAsGood = 0.965, kStillAsGood = 0.95, kLargerStillAsGood = 0.975;
constexpr int64_t kShortNs = 1'000'000;
// To gather the next batch only then takes less than a twentieth of that.
constexpr int64_t kLongNs = 5'000'000;
// Where single rows reach less than that of the best rate, sizes between are not tried; nor is a
// size tried again whose rate was so much lower.
constexpr double kWorthTrying = 0.7, kWorthTryingAgain = 0.92;

// A time is learned again after so long at first, in the end after kOldNs, but not more often than
// once in kRare such times.
constexpr int64_t kSoonNs = 4'000'000'000, kOldNs = 300'000'000'000, kRare = 2000;

struct Option {
  const BatchSize* size;
  size_t requests = 0;
  double rate = 0;  // rows that are no padding in a nanosecond; 0: unknown
};

}  // namespace

void LearnedTime::Add(int64_t ns, int64_t now_ns) {
  const bool is_aged = IsAged(now_ns);
  learned_ns_.store(now_ns, std::memory_order_relaxed);
  const int64_t before = mean_ns_.load(std::memory_order_relaxed);
  const int count = count_.load(std::memory_order_relaxed) + 1;
  if (count < kMostCounted) count_.store(count, std::memory_order_relaxed);
  if (count <= terms_.skipped) return;
  const int after = count - terms_.skipped - terms_.first;
  if (after <= 0) {
    mean_ns_.store(before == 0 ? ns : std::min(before, ns), std::memory_order_relaxed);
    known_since_ns_.store(now_ns, std::memory_order_relaxed);
    ready_.store(after == 0, std::memory_order_relaxed);
    return;
  }
  double weight = ns < before ? kOfShorter : kOfLonger;
  if (terms_.span_ns > 0) {
    const double of_span = static_cast<double>(ns) / static_cast<double>(terms_.span_ns);
    weight = std::clamp(of_span, 1.0 / (after + 1), kAfterLong);
    if (is_aged) weight = kAfterLong;
  }
  const double mean = static_cast<double>(before) + weight * static_cast<double>(ns - before);
  mean_ns_.store(std::max<int64_t>(std::llround(mean), 1), std::memory_order_relaxed);
}

bool LearnedTime::IsAged(int64_t now_ns) const {
  return terms_.span_ns > 0 && now_ns - learned_ns() > terms_.span_ns;
}

bool LearnedTime::IsOld(int64_t now_ns) const {
  const int64_t known = learned_ns() - known_since_ns_.load(std::memory_order_relaxed);
  const int64_t most = std::max(kOldNs, kRare * ns());
  return now_ns - learned_ns() > std::clamp(known, kSoonNs, most);
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
  const Option* chosen = nullptr;
  for (const Option& option : options) {
    if (option.rate < kAsGood * highest) continue;
    chosen = &option;
    if (option.size->ns >= kShortNs) break;
  }
  const Option* usual = nullptr;
  for (const Option& option : options) {
    if (option.size->usual && option.rate > 0) usual = &option;
  }
  if (usual != nullptr && usual != chosen) {
    const bool larger = usual->size->rows > chosen->size->rows;
    const bool stays = usual->rate >= kStillAsGood * highest &&
                       (!larger || usual->rate >= kLargerStillAsGood * chosen->rate);
    if (!stays && chosen->size->aged) return {.requests = chosen->requests};
    if (stays) chosen = usual;
  }
  BatchChoice choice = {.requests = chosen->requests, .usual = chosen->size->rows};
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

bool IsTooEarly(int64_t rows, int64_t usual, int64_t ns) { return rows < usual && ns >= kLongNs; }

}  // namespace telegrad
