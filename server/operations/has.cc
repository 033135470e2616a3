// Looks the hash up in the tenant's store, and compiles the graph where that was asked for.
#include "server/operations/has.h"

#include <algorithm>
#include <utility>

#include "engine/execution/bound_values.h"
#include "server/operations/compiling.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

class HasAction final : public Action {
 public:
  explicit HasAction(HasOp op) : op_(std::move(op)) {
    std::ranges::sort(op_.variables);  // as the bounds of a form are
  }

  Step Do(Turn& turn) override {
    const auto graph = FindGraph(turn.tenant(), op_.hash);
    if (!graph.ok() && !absl::IsNotFound(graph.status())) return turn.Fail(graph.status());
    HasResult result{.has = graph.ok()};
    // One with variables is compiled for values of them, and what runs take depends on these.
    const bool compiles =
        graph.ok() && op_.compile && (!op_.variables.empty() || !(*graph)->has_variables);
    if (!compiles) return turn.Reply(MakeResult(std::move(result)));
    if (turn.where() != OnThread::kCompiler) return Step::kNeedsCompiler;
    const absl::Status allowed = turn.tenant().TakeCompileTime(turn.env().clock->Ns());
    if (!allowed.ok()) return turn.Fail(allowed);
    const CompileTimer charged(&turn.tenant());
    const auto compiled = CompileAhead(turn, **graph, op_.devices, op_.variables);
    if (!compiled.ok()) return turn.Fail(compiled.status());
    result.cost = FormCostOf(*compiled->executable, op_.variables);
    return turn.Reply(MakeResult(std::move(result)));
  }

 private:
  HasOp op_;
};

}  // namespace

std::unique_ptr<Action> MakeAction(HasOp op) { return std::make_unique<HasAction>(std::move(op)); }

}  // namespace telegrad
