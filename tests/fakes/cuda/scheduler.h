// The thread that gives streams their turns, and the ways to hand it work and to wait for it.
#pragma once

#include <memory>
#include <mutex>

#include "tests/fakes/cuda/state.h"

namespace fakecuda {

// All of these hold the driver's mutex.
void StartScheduler(Driver& driver);
// Appends to the stream; the result is done when the operation is.
std::shared_ptr<Marker> Submit(Driver& driver, Stream& stream, Operation operation);
// Whether everything that the stream has now has ended.
bool Idle(const Stream& stream);
// Waits for what has been submitted to the stream until now.
void WaitForStream(Driver& driver, std::unique_lock<std::mutex>& lock, Handle stream);
void WaitForMarker(Driver& driver, std::unique_lock<std::mutex>& lock,
                   std::shared_ptr<Marker> marker);
// Waits until the stream runs nothing and drops what else it has; it is then gone.
void DropStream(Driver& driver, std::unique_lock<std::mutex>& lock, Handle stream);

// Whether this thread is inside of a host function, which may not call the driver.
bool InHostFunction();
// Calls it as one.
void CallHostFunction(HostFunction function, void* data);

}  // namespace fakecuda
