// Runs a compiled kernel on the interpreter of AMD's machine code.
#pragma once

#include <cstdint>
#include <vector>

#include "devices/api/device.h"
#include "engine/types/target.h"
#include "tests/fakes/amd/amd_machine.h"

namespace telegrad::testing {

// Launches `groups` workgroups from `begin` on and changes the arguments as the kernel does; a
// fault fails the test. `counts`, which may be null, is what the launch took.
void RunOnMachine(const ProgramImage& image, const Target& target, int64_t begin, int64_t groups,
                  std::vector<std::vector<uint8_t>>* arguments, fakeamd::Counts* counts = nullptr);

}  // namespace telegrad::testing
