// A graph without variables is compiled when it is loaded, one with variables for the values of
// each run. Executables are kept in a cache.
#include "tests/fakes/loopback/graph_loader.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/ir/content_hash.h"
#include "engine/rewrite/generalize.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

class LoadedGraph final : public GraphProgram {
 public:
  LoadedGraph(FrozenGraph graph, std::shared_ptr<ExecutableCache> cache,
              const Budget::Limits& limits, Device* device)
      : graph_(std::move(graph)), cache_(std::move(cache)), limits_(limits), device_(*device) {}

  absl::StatusOr<TimelinePoint> Submit(std::span<const BufferView> bindings,
                                       std::span<const VarValue> variables) const override {
    TG_ASSIGN_OR_RETURN(auto executable, Executable(variables));
    return executable->Submit(bindings, {});
  }
  absl::StatusOr<std::shared_ptr<const telegrad::Executable>> Executable(
      std::span<const VarValue> variables) const {
    Budget budget(limits_);
    TG_ASSIGN_OR_RETURN(
        auto made, cache_->Get(ContentHash(graph_.root()), graph_, device_, &budget, variables));
    return std::move(made.executable);
  }

 private:
  const FrozenGraph graph_;
  const std::shared_ptr<ExecutableCache> cache_;
  const Budget::Limits limits_;
  Device& device_;
};

}  // namespace

GraphLoader MakeGraphLoader(std::shared_ptr<ExecutableCache> cache, const Budget::Limits& limits) {
  return [cache = std::move(cache), limits](
             std::string_view bytes,
             Device& device) -> absl::StatusOr<std::shared_ptr<const GraphProgram>> {
    Budget budget(limits);
    TG_ASSIGN_OR_RETURN(const FrozenGraph graph, GraphFromBytes(bytes, &budget));
    auto loaded = std::make_shared<LoadedGraph>(graph, cache, limits, &device);
    // With variables it is compiled for the values of its runs.
    if (RangesOf(graph.root()).empty()) TG_RETURN_IF_ERROR(loaded->Executable({}).status());
    return loaded;
  };
}

}  // namespace telegrad
