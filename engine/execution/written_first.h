// Whether the kernels of a schedule write each temporary in full before they read any of it. Then
// what the memory held before, perhaps another tenant's values, is never seen.
#pragma once

#include "engine/schedule/schedule.h"

namespace telegrad {

// False where that is not proved.
bool WritesTemporariesFirst(const Schedule& schedule);

}  // namespace telegrad
