// Tokenizes and parses a module, checks that its target runs on the device, and decodes each
// kernel; errors go to the log with their lines.
#include "tests/fakes/cuda/ptx/assemble.h"

#include <cctype>
#include <cstdlib>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/parser.h"

namespace fakecuda {
namespace {

// PTX ISA, ".target": code for sm_N runs on N and later; sm_Na only on N itself.
AssembleError CheckTarget(const std::string& target, const Machine& machine, std::string* log) {
  const int device = machine.major * 10 + machine.minor;
  if (!target.starts_with("sm_") || target.size() < 5) {
    *log = "unknown .target " + target;
    return AssembleError::kInvalidPtx;
  }
  const bool exact = target.back() == 'a';
  const int arch = std::atoi(target.c_str() + 3);
  if (arch < 50 || (!exact && std::isdigit(static_cast<unsigned char>(target.back())) == 0)) {
    *log = "unknown .target " + target;
    return AssembleError::kInvalidPtx;
  }
  if (exact ? arch == device : arch <= device) return AssembleError::kNone;
  *log = "code for " + target + " does not run on sm_" + std::to_string(device);
  return AssembleError::kNoBinaryForGpu;
}

}  // namespace

Assembly ReadModule(std::string_view text, const Machine& machine) {
  Assembly result;
  if (!Parse(text, &result.module, &result.log)) {
    result.error = AssembleError::kInvalidPtx;
    return result;
  }
  if (result.module.version > machine.ptx_version) {
    result.log = "PTX of version " + std::to_string(result.module.version / 10) + "." +
                 std::to_string(result.module.version % 10) + " is newer than the driver";
    result.error = AssembleError::kUnsupportedPtxVersion;
    return result;
  }
  result.error = CheckTarget(result.module.target, machine, &result.log);
  return result;
}

void MakeKernels(uint64_t globals, Assembly* assembly) {
  for (const Function& function : assembly->module.functions) {
    Kernel kernel;
    if (!Decode(assembly->module, function, globals, &kernel, &assembly->log)) {
      assembly->error = AssembleError::kInvalidPtx;
      return;
    }
    assembly->kernels.push_back(std::move(kernel));
  }
}

}  // namespace fakecuda
