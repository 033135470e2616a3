// Looks the hash up in the tenant's store.
#include "server/operations/has.h"

#include <utility>

#include "server/operations/compiling.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

class HasAction final : public Action {
 public:
  explicit HasAction(HasOp op) : op_(std::move(op)) {}

  Step Do(Turn& turn) override {
    const auto graph = FindGraph(turn.tenant(), op_.hash);
    if (!graph.ok() && !absl::IsNotFound(graph.status())) return turn.Fail(graph.status());
    return turn.Reply(MakeResult(HasResult{.has = graph.ok()}));
  }

 private:
  const HasOp op_;
};

}  // namespace

std::unique_ptr<Action> MakeAction(HasOp op) { return std::make_unique<HasAction>(std::move(op)); }

}  // namespace telegrad
