// The configuration of the fake driver (knobs: which device it has, which failures occur), its
// counters, and its list of problems. Guarded by the driver's mutex.
#pragma once

#include <cstdint>
#include <string>

namespace fakecuda {

// One row per knob: KNOB(name, default). Counts down: "the n-th from now", 0 for never.
struct Knobs {
#define KNOB(name, value, text) int64_t name = value;
#include "tests/fakes/cuda/knobs.def"
#undef KNOB
};

struct Counters {
#define COUNTER(name, text) int64_t name = 0;
#include "tests/fakes/cuda/counters.def"
#undef COUNTER
};

// Defaults, then the environment.
Knobs KnobsFromEnvironment();
// Null if there is none of this name.
int64_t* FindKnob(Knobs* knobs, const std::string& name);
const int64_t* FindCounter(const Counters& counters, const std::string& name);

// Counts a knob down; whether it has just become 0.
bool Now(int64_t* knob);

}  // namespace fakecuda
