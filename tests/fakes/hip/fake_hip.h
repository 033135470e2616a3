// The controls of the fake HIP library (libamdhip64.so.6 in tests/fakes of the build tree), which
// loads code objects and interprets their machine code (tests/fakes/amd).
//
// Streams, memory, graphs and faults are those of the fake NVIDIA driver, with its strictness,
// knobs and counters (tests/fakes/cuda/fake_cuda.h): each function here has the meaning of one
// there. What is HIP's own is in the files beside this one. Environment variables of knobs begin
// with FAKE_HIP_.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
int fakeHipSet(const char* knob, int64_t value);
int64_t fakeHipGet(const char* knob);
int64_t fakeHipCount(const char* counter);
void fakeHipRelease();
size_t fakeHipProblems(char* text, size_t size);
void fakeHipReset();
}
