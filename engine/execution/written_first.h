// Whether the kernels of a schedule write of each temporary all that they read of it, before they
// read it. Then earlier contents of the memory, perhaps of another run, are never read.
#pragma once

#include "engine/schedule/schedule.h"

namespace telegrad {

// False where that is not proved.
bool WritesTemporariesFirst(const Schedule& schedule);

}  // namespace telegrad
