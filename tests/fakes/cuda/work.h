// What streams and graphs do: copies, memsets and launches, checked when they are submitted and run
// when their turn comes.
#pragma once

#include <cstdint>

#include "tests/fakes/cuda/state.h"

namespace fakecuda {

// Until nothing runs on any stream.
void AwaitRunning(Call& call);
// What a launch of the function does first, where functions are loaded when they are used.
void LoadForLaunch(Call& call, Handle function);

// Runs a copy of a stream or graph, adding to the outcome.
void RunCopy(const PreparedCopy& copy, const MemoryView& memory, Outcome* outcome);
void RunMemset(DevicePointer to, uint8_t value, uint64_t bytes, const MemoryView& memory,
               Outcome* outcome);

void RunWord(DevicePointer to, uint64_t value, const MemoryView& memory, Outcome* outcome);

// A launch with its parameters copied, if the shape and the function agree with the device.
Result Prepare(Driver& driver, const Context& context, Handle function, const uint32_t grid[3],
               const uint32_t block[3], uint64_t shared_bytes, void** parameters, void** extra,
               PreparedLaunch* launch);

// What a launch meets, decided when it is submitted.
struct LaunchFate {
  Result fault = CUDA_SUCCESS;  // at its end
  bool hangs = false;
  uint64_t budget = 0;
};
LaunchFate DrawFate(Driver& driver);
void RunLaunch(const PreparedLaunch& launch, const LaunchFate& fate, const MemoryView& memory,
               Outcome* outcome);

}  // namespace fakecuda
