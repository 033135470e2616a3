// What one thread of the CPU does, at its usual rather than its best.
#pragma once

#include "devices/api/device.h"
#include "engine/types/target.h"

namespace telegrad {

inline constexpr Rates kThreadRates{.flops = kCpuThreadFlops, .bytes = kCpuThreadBytes};

}  // namespace telegrad
