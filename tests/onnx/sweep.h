// Runs many cases in processes of their own, so that a crash or a hang is the failure of one case.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace telegrad::testing {

struct SweepOptions {
  int jobs = 1;           // processes at a time
  double timeout_s = 60;  // of one case
};

struct CaseResult {
  bool ok = false;
  std::string message;  // why not, on one line
};

// Results of run(0) ... run(count - 1), each called in a child, which is forked: the caller may
// have one thread only. A child runs as many as it can. `run` returns an empty string or what went
// wrong; `opened` is called first in every child and its result, if not empty, fails all its cases.
std::vector<CaseResult> Sweep(size_t count, const SweepOptions& options,
                              const std::function<std::string()>& opened,
                              const std::function<std::string(size_t)>& run);

}  // namespace telegrad::testing
