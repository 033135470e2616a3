// A reduction that loads from one buffer up to a position and from another one behind it, as a
// convolution over a concatenation does. As two reductions, one for each buffer, its loads need no
// gates, and each may have its vectors.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/lowering/kernel_shape.h"

namespace telegrad {

inline constexpr size_t kMaxTiledNodes = 2000;  // a larger kernel is not tiled

struct ReducedPart {
  int range = 0;     // a reduced one, by its number in the shape
  int64_t size = 0;  // its iterations before the other part
};

// nullopt where there is none, where a part is so short that its loop costs more than the gates, or
// where the kernel would be too large to be tiled.
std::optional<ReducedPart> FindPart(const KernelShape& shape, const Work& work);

}  // namespace telegrad
