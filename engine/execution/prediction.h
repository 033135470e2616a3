// How long a kernel will take: what it computes and moves against what the device says it can do.
// A prediction, good enough to cut work into pieces, to order it and to refuse what is far too
// much; nothing is measured.
#pragma once

#include <cstdint>

#include "devices/api/device.h"

namespace telegrad {

// The longest that one launch should keep others from the device.
inline constexpr double kSegmentSeconds = 5e-3;

// 0 where the device declares no rates.
double PredictedSeconds(double flops, double bytes, const Rates& rates);

// Into how many launches of at most kSegmentSeconds each a kernel is cut; at most one for each of
// its iterations, for only these can be told apart.
int SegmentsOf(double seconds, int64_t iterations);

}  // namespace telegrad
