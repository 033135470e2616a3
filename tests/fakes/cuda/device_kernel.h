// A kernel as the driver sees it, whatever its code is: what a launch must bring, and how it runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakes/cuda/abi.h"
#include "tests/fakes/cuda/ptx/counts.h"
#include "tests/fakes/cuda/ptx/memory.h"

namespace fakecuda {

struct KernelRun {
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint64_t dynamic_shared = 0;
  const std::vector<uint8_t>* parameters = nullptr;
  const MemoryView* memory = nullptr;
  uint64_t budget = 0;  // instructions that may run
};

struct KernelEnd {
  Result result = CUDA_SUCCESS;
  std::string message;
  uint64_t instructions = 0;
  LaunchCounts counts = {};
};

class DeviceKernel {
 public:
  struct Parameter {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  virtual ~DeviceKernel() = default;
  virtual KernelEnd Run(const KernelRun& run) const = 0;

  std::string name;
  std::vector<Parameter> parameters;
  uint64_t parameter_bytes = 0;
  std::array<uint32_t, 3> required_threads = {0, 0, 0};  // 0: any
  uint32_t maximal_threads = 1024;
  uint64_t shared_bytes = 0;  // fixed
  uint64_t local_bytes = 0;   // of a thread, in device memory
  int registers = 0;
};

}  // namespace fakecuda
