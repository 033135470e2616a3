// Creates and destroys contexts, with everything in them.
#pragma once

#include <mutex>

#include "tests/fakes/cuda/state.h"

namespace fakecuda {

// All of these hold the driver's mutex.
Context& MakeContext(Driver& driver, int device);
// Ends what runs in the context and drops all of its objects; reports those that nobody gave back,
// unless that was asked for: `is_reset`.
void EmptyContext(Driver& driver, std::unique_lock<std::mutex>& lock, Handle handle,
                  bool is_reset = false);
// The same, and the context itself.
void RemoveContext(Driver& driver, std::unique_lock<std::mutex>& lock, Handle handle);

}  // namespace fakecuda
