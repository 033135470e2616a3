// How many operations an iteration of a tile has.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/lowering/kernel_shape.h"

namespace telegrad {

// Of the work, where an iteration has so many copies of each range, of so many lanes: in loads
// where lanes lie apart in memory, else in vectors. What is made of a load alone, as a conversion,
// is made once for all copies that load the same elements, as those of a window do.
double CopiedOperations(const Work& work, const std::vector<int64_t>& copies,
                        const std::vector<int64_t>& lanes);

}  // namespace telegrad
