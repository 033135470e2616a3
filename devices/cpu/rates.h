// What one thread of the CPU does, at its usual rather than its best.
#pragma once

#include "devices/api/device.h"

namespace telegrad {

// Arithmetic is measured, once in a process and in about a millisecond; memory is kCpuThreadBytes.
const Rates& ThreadRates();

}  // namespace telegrad
