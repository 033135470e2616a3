// Which arguments of kernels are results of their graph.
#pragma once

#include "engine/schedule/schedule.h"

namespace telegrad {

// Gives each kernel its `results`: what no kernel reads after it need not be in a cache.
void FindResults(Schedule* schedule);

}  // namespace telegrad
