// memcpy of blocks that are too large for the caches.
#pragma once

#include <cstddef>

namespace telegrad {

// From so many bytes on, the stores of StreamCopy bypass the caches: nothing of a block that large
// would still be there for who reads it next.
inline constexpr size_t kStreamedBytes = size_t{1} << 20;

// memcpy. Where the processor has such stores, a large block is written without being read into the
// caches first, which saves a third of the memory traffic. The writes are visible to other threads
// under the same conditions as those of memcpy.
void StreamCopy(void* to, const void* from, size_t bytes);

}  // namespace telegrad
