// Brings an NVIDIA GPU up through its kernel driver, without libcuda, step by step: objects,
// address space, channels, doorbell, then a semaphore, a copy and a kernel. The steps are a
// table; a step that fails skips those that need it and no other. Everything is released at the
// end.
//
// It supports one driver branch (abi_580.h) and one architecture (Hopper), and uses no memory of
// the GPU that it did not allocate.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "devices/hcq/sys_ops.h"

namespace telegrad::nv {

struct ProbeOptions {
  int gpu = 0;                         // by the driver's order
  bool force = false;                  // goes on with a driver of another branch
  int64_t timeout_ns = 2'000'000'000;  // of each wait for the GPU
};

enum class StepResult : uint8_t { kOk, kFailed, kSkipped };

struct StepReport {
  int number;  // from 1
  std::string_view name;
  StepResult result;
  std::string detail;  // what was found, what failed and why, or which step is missing
};

struct ProbeReport {
  std::vector<StepReport> steps;
  std::string no_device;          // why there is nothing to probe; else empty
  bool refused = false;           // the driver is of another branch
  std::vector<std::string> left;  // what could not be given back
};

// `on_step` sees each step as it ends.
ProbeReport RunProbe(hcq::SysOps& system, const ProbeOptions& options,
                     const std::function<void(const StepReport&)>& on_step);

// "[ 3/29] ok       root client: 0xc1d00001".
std::string StepLine(const StepReport& step);

// What nv_probe exits with. Wrong usage is 2.
enum ProbeExit : int {
  kProbeDone = 0,     // every step was ok, or there is no device
  kProbeFailed = 1,   // a step failed
  kProbeRefused = 3,  // a driver of another branch
  kProbeLeft = 4,     // something could not be given back
  kProbeStuck = 5,    // a call did not come back from the kernel
};
ProbeExit ExitCode(const ProbeReport& report);

}  // namespace telegrad::nv
