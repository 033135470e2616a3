#include "server/admin/histogram.h"

#include <algorithm>
#include <numeric>

namespace telegrad {
namespace {

// Finer where most things are, between 10 us and 10 s.
constexpr double kBounds[] = {1e-6, 3e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3,
                              1e-2, 2e-2, 5e-2, 0.1,  0.2,  0.5,  1,    3,    10,   100};
static_assert(std::size(kBounds) + 1 == Histogram::kBuckets);

}  // namespace

std::span<const double> Histogram::Bounds() { return kBounds; }

int64_t Histogram::Counts::total() const {
  return std::accumulate(buckets.begin(), buckets.end(), int64_t{0});
}

void Histogram::Observe(int64_t ns) {
  ns = std::max<int64_t>(ns, 0);
  const auto* const bound = std::ranges::lower_bound(kBounds, static_cast<double>(ns) * 1e-9);
  buckets_[static_cast<size_t>(bound - kBounds)].fetch_add(1, std::memory_order_relaxed);
  ns_.fetch_add(ns, std::memory_order_relaxed);
}

Histogram::Counts Histogram::Read() const {
  Counts out;
  for (size_t i = 0; i < kBuckets; ++i) {
    out.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
  }
  out.seconds = static_cast<double>(ns_.load(std::memory_order_relaxed)) * 1e-9;
  return out;
}

}  // namespace telegrad
