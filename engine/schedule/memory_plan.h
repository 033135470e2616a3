// Lifetimes to offsets: temporaries whose lifetimes do not meet share memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/schedule.h"

namespace telegrad {

inline constexpr int64_t kTemporaryAlignment = 256;

struct Lifetime {
  int64_t first = 0;  // index of the kernel that writes it
  int64_t last = 0;   // index of the last kernel that reads it
};

// Sets the offsets of `temporaries` and returns the size of the arena: the first place that is
// free, in order of birth or, where that is less and they are not too many, of size.
int64_t PlanMemory(std::span<const Lifetime> lifetimes, std::span<Temporary> temporaries);

}  // namespace telegrad
