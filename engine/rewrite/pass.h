// The pass runner: every pass gets deadline and cancellation, a disable switch, timing,
// verification and a dump for free.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad {

struct Pass {
  std::string_view name;
  std::function<UOp(UOp root)> run;  // errors are sticky in the graph; an invalid UOp stops the run
};

struct PassTime {
  std::string_view name;
  std::chrono::nanoseconds time;
};

struct PassOptions {
  Budget* budget = nullptr;                      // checked before every pass
  std::span<const std::string> disabled;         // names of passes that are skipped
  std::function<absl::Status(UOp root)> verify;  // after every pass, if given
  std::function<void(std::string_view pass, UOp root)> dump;
  std::vector<PassTime>* times = nullptr;  // appended to
};

// Runs `passes` in order on `root`. An error names the pass it arose in. The passes work within
// `graph`.
absl::StatusOr<UOp> RunPasses(Graph* graph, UOp root, std::span<const Pass> passes,
                              const PassOptions& options);

}  // namespace telegrad
