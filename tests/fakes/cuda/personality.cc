// Knobs and counters by name, from the lists of their definitions, and the values of knobs in
// the environment variables FAKE_CUDA_NAME and FAKE_HIP_NAME.
#include "tests/fakes/cuda/personality.h"

#include <cctype>
#include <cstdlib>

namespace fakecuda {

int64_t* FindKnob(Knobs* knobs, const std::string& name) {
#define KNOB(knob, value, text) \
  if (name == #knob) return &knobs->knob;
#include "tests/fakes/cuda/knobs.def"
#undef KNOB
  return nullptr;
}

const int64_t* FindCounter(const Counters& counters, const std::string& name) {
#define COUNTER(counter, text) \
  if (name == #counter) return &counters.counter;
#include "tests/fakes/cuda/counters.def"
#undef COUNTER
  return nullptr;
}

Knobs KnobsFromEnvironment() {
  Knobs knobs;
  constexpr const char* kNames[] = {
#define KNOB(knob, value, text) #knob,
#include "tests/fakes/cuda/knobs.def"
#undef KNOB
  };
  for (const char* const prefix : {"FAKE_CUDA_", "FAKE_HIP_"}) {
    for (const std::string name : kNames) {
      std::string variable = prefix;
      for (const char c : name) {
        variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      }
      const char* value = std::getenv(variable.c_str());
      if (value != nullptr) *FindKnob(&knobs, name) = std::strtoll(value, nullptr, 0);
    }
  }
  return knobs;
}

bool Now(int64_t* knob) { return *knob > 0 && --*knob == 0; }

}  // namespace fakecuda
