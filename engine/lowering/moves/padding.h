// What completes the tiles of a range whose size they do not divide.
#pragma once

#include "engine/types/target.h"

namespace telegrad {

struct Padding {
  // The last tile begins earlier, so that it is whole, and computes some elements again. Else, and
  // where that may not be or there is one tile only, the size is rounded up: the iterations beyond
  // it are gated.
  bool moves_back;
  // All loads of such iterations are gated, before the ranges are split: once several of them have
  // parts of the same threads, what depends on which can no longer be told. Else those that could
  // leave their buffers, which is known once the ranges are split, and those of a thread's memory,
  // which may have no value there.
  bool gates_loads;
  // What is reduced is rounded up, too: iterations beyond the size contribute the identity. Else
  // tiles divide it, and a remainder is a reduction of its own (PEEL).
  bool gates_reductions;
  // Lanes that lie all inside or all outside of the size have one gate; else each has its own.
  bool gates_vectors;
};

// A gate costs a loop its time. Workgroups have iterations beyond the size in any case, of threads
// that do not get one, and no two of them may write the same element.
inline constexpr Padding kPaddingOfLoops = {
    .moves_back = true, .gates_loads = false, .gates_reductions = false, .gates_vectors = false};
inline constexpr Padding kPaddingOfGates = {
    .moves_back = false, .gates_loads = true, .gates_reductions = true, .gates_vectors = true};

inline const Padding& PaddingOf(const Target& target) {
  return target.padding == TilePadding::kGates ? kPaddingOfGates : kPaddingOfLoops;
}

}  // namespace telegrad
