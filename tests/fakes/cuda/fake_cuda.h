// The controls of the fake NVIDIA driver (libcuda.so.1 in tests/fakes of the build tree). A test
// opens the library with dlopen, as programs open the real one, and finds these by dlsym.
//
// The driver is strict: operations run when the scheduler gives their stream a turn (in an order
// drawn from the seed), device addresses are nothing that the host can read, addresses are never
// used twice, memory is not zeroed, and a fault poisons its context until that is destroyed.
//
// Knobs, their environment variables (FAKE_CUDA_ and the name in capitals; read at the first call)
// and defaults are the table in personality.cc; counters are in counters.def.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Sets a knob; 0, or -1 if there is none of this name.
int fakeCudaSet(const char* knob, int64_t value);
int64_t fakeCudaGet(const char* knob);

// A counter since the last reset; -1 if there is none of this name.
int64_t fakeCudaCount(const char* counter);

// Lets launches that hang (knob hang_launch) end.
void fakeCudaRelease();

// What the driver saw and no error code tells, a line each: leaks, double frees, the messages of
// kernel faults. Copies up to `size` bytes with the final 0; returns the length of all of it.
size_t fakeCudaProblems(char* text, size_t size);

// Destroys every object and sets knobs, counters and problems back, as in a new process. Nothing
// may be waiting in the driver.
void fakeCudaReset();
}
