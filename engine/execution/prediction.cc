#include "engine/execution/prediction.h"

#include <algorithm>
#include <cmath>

namespace telegrad {
namespace {

// A kernel is cut into at most this many segments; a longer kernel has longer segments.
constexpr double kMaxPredictedSegments = 65'536;

}  // namespace

double PredictedSeconds(double flops, double bytes, const Rates& rates) {
  double seconds = 0;
  if (rates.launch_flops() > 0) seconds = flops / rates.launch_flops();
  if (rates.bytes > 0) seconds = std::max(seconds, bytes / rates.bytes);
  return seconds;
}

int SegmentsOf(double seconds, int64_t iterations, int64_t at_once) {
  const double most = std::min(kMaxPredictedSegments,
                               static_cast<double>(iterations / std::max<int64_t>(at_once, 1)));
  return static_cast<int>(std::max(1.0, std::min(most, std::ceil(seconds / kSegmentSeconds))));
}

}  // namespace telegrad
