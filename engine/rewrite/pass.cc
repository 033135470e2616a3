#include "engine/rewrite/pass.h"

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad {
namespace {

absl::Status In(std::string_view pass, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(pass, ": ", status.message()));
}

}  // namespace

absl::StatusOr<UOp> RunPasses(Graph* graph, UOp root, std::span<const Pass> passes,
                              const PassOptions& options) {
  for (const Pass& pass : passes) {
    if (std::ranges::find(options.disabled, pass.name) != options.disabled.end()) continue;
    if (options.budget != nullptr) {
      if (absl::Status status = options.budget->CheckTime(); !status.ok()) {
        return In(pass.name, status);
      }
    }
    const auto begin = std::chrono::steady_clock::now();
    root = pass.run(root);
    if (options.times != nullptr) {
      options.times->push_back({pass.name, std::chrono::steady_clock::now() - begin});
    }
    if (!graph->status().ok()) return In(pass.name, graph->status());
    if (!root.valid()) return In(pass.name, Internal("returned no node and no error"));
    if (options.dump) options.dump(pass.name, root);
    if (options.verify) {
      if (absl::Status status = options.verify(root); !status.ok()) return In(pass.name, status);
    }
  }
  return root;
}

}  // namespace telegrad
