// The usual rates of one thread of the CPU, for predictions; its peak rates are higher.
#pragma once

#include "devices/api/device.h"

namespace telegrad {

// Arithmetic is measured, once in a process and in about a millisecond; memory is kCpuThreadBytes.
const Rates& ThreadRates();

}  // namespace telegrad
