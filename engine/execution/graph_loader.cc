#include "engine/execution/graph_loader.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/ir/content_hash.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

class LoadedGraph final : public GraphProgram {
 public:
  LoadedGraph(std::shared_ptr<const Executable> executable, std::shared_ptr<ExecutableCache> cache)
      : executable_(std::move(executable)), cache_(std::move(cache)) {}

  absl::StatusOr<TimelinePoint> Submit(std::span<const BufferView> bindings) const override {
    return executable_->Submit(bindings, {});
  }

 private:
  const std::shared_ptr<const Executable> executable_;
  const std::shared_ptr<ExecutableCache> cache_;  // whose kernels and memory it uses
};

}  // namespace

GraphLoader MakeGraphLoader(std::shared_ptr<ExecutableCache> cache, const Budget::Limits& limits) {
  return [cache = std::move(cache), limits](
             std::string_view bytes,
             Device& device) -> absl::StatusOr<std::shared_ptr<const GraphProgram>> {
    Budget budget(limits);
    TG_ASSIGN_OR_RETURN(const FrozenGraph graph, GraphFromBytes(bytes, &budget));
    TG_ASSIGN_OR_RETURN(auto made, cache->Get(ContentHash(graph.root()), graph, device, &budget));
    return std::make_shared<LoadedGraph>(std::move(made.executable), cache);
  };
}

}  // namespace telegrad
