// Results that take the place of operands that nobody reads any more.
#pragma once

#include <vector>

#include "engine/schedule/memory_plan.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// Where a kernel begins the life of a temporary and ends that of another, and each element of the
// one depends on no more of the other than the same element, they become one temporary. It keeps
// the place of the first in `schedule->temporaries` and `*lifetimes`; the others are removed.
// Not where register tiles of `tile` rows (ScheduleCosts) would have to compute elements again.
void WriteInPlace(Schedule* schedule, std::vector<Lifetime>* lifetimes, int64_t tile);

}  // namespace telegrad
