// Runs a kernel: all workgroups of a grid, one after another, with every check of the
// interpreter.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/cuda/ptx/code.h"
#include "tests/fakes/cuda/ptx/memory.h"
#include "tests/fakes/cuda/ptx/shadow.h"

namespace fakecuda {

// Why a kernel did not end well, by the driver's numbers (cuda.h, cudaError_enum).
enum class FaultCode : int {
  kNone = 0,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kLaunchFailed = 719,
};

struct Fault {
  FaultCode code = FaultCode::kNone;
  std::string message;  // kernel, line, thread, what
};

struct LaunchShape {
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint64_t dynamic_shared = 0;
};

// One launch while it runs: what its workgroups share.
struct Launch {
  const Kernel* kernel = nullptr;
  LaunchShape shape;
  const uint8_t* parameters = nullptr;
  const MemoryView* memory = nullptr;
  uint64_t budget = 0;        // thread-instructions that may still run
  uint64_t instructions = 0;  // thread-instructions that have run
  LaunchCounts counts;
  Fault fault;

  std::vector<std::unique_ptr<Shadow>> shadows;  // by region, made at the first access
  uint32_t clock = 1;                            // first of the next workgroup

  uint64_t threads() const { return uint64_t{shape.block[0]} * shape.block[1] * shape.block[2]; }
};

// Runs it to its end or its first fault, which is also returned.
Fault Run(Launch& launch);

}  // namespace fakecuda
