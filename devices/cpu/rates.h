// What one thread of the CPU does, at its usual rather than its best.
#pragma once

#include "devices/api/device.h"

namespace telegrad {

inline constexpr Rates kThreadRates{.flops = 40e9, .bytes = 12e9};

}  // namespace telegrad
