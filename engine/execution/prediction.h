// Predicts the time of a kernel from its operations and bytes and the rates that the device
// declares. Nothing is measured; the prediction serves to cut work into slices, to order it and to
// refuse runs that are far too long.
#pragma once

#include <cstdint>

#include "devices/api/device.h"

namespace telegrad {

// The longest time for which one launch should occupy the device.
inline constexpr double kSegmentSeconds = 5e-3;

// 0 where the device declares no rates.
double PredictedSeconds(double flops, double bytes, const Rates& rates);

// Into how many launches of at most kSegmentSeconds each a kernel is cut. Each has at least as many
// of its iterations as the device does at once (Rates::iterations): one of fewer would take as long
// and leave the rest of the device idle.
int SegmentsOf(double seconds, int64_t iterations, int64_t at_once = 1);

}  // namespace telegrad
