// Decodes, verifies and, if asked, compiles on a worker, and then stores the graph.
#include "server/operations/put.h"

#include <utility>

#include "engine/base/status.h"
#include "server/operations/compiling.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

constexpr size_t kMaxDevices = 256;

class PutAction final : public Action {
 public:
  explicit PutAction(PutOp op) : op_(std::move(op)) {}

  Step Do(Turn& turn) override {
    if (turn.where() != OnThread::kCompiler) return Step::kNeedsCompiler;
    Tenant& tenant = turn.tenant();
    Budget budget(turn.env().limits.job);
    budget.SetShare(tenant.share);
    const int64_t now_ns = turn.env().clock->Ns();
    absl::Status allowed = tenant.TakeCompileTime(now_ns);
    if (allowed.ok()) allowed = tenant.TakeTransfer(static_cast<uint64_t>(op_.bytes), now_ns);
    if (op_.devices.size() > kMaxDevices) {
      return turn.Fail(InvalidArgument("put: ", op_.devices.size(),
                                       " devices to compile for, expected at most ", kMaxDevices,
                                       ", the numbers that a graph can have"));
    }
    for (const std::string& name : op_.devices) {
      if (allowed.ok()) allowed = turn.env().devices->Find(name).status();
    }
    if (!allowed.ok()) return turn.Fail(allowed);
    const CompileTimer charged(&tenant);
    auto verified = op_.decode(&budget);
    op_.decode = nullptr;
    if (!verified.ok()) return turn.Fail(verified.status());
    auto stored = tenant.graphs.Put(*std::move(verified), op_.bytes);
    if (!stored.ok()) return turn.Fail(stored.status());
    turn.Count(Metric::kGraphPuts);
    PutResult result{.hash = (*stored)->hash};
    if (op_.compile && !(*stored)->has_variables) {  // these are specialized to each run's values
      // A graph that names more devices than the server has may still run where its buffers are.
      const auto compiled = CompileAhead(turn, **stored, op_.devices);
      if (compiled.ok()) {
        result.cost = compiled->executable->cost();
      } else if (!absl::IsNotFound(compiled.status())) {
        return turn.Fail(compiled.status());
      }
    }
    return turn.Reply(MakeResult(result));
  }

 private:
  PutOp op_;
};

}  // namespace

std::unique_ptr<Action> MakeAction(PutOp op) { return std::make_unique<PutAction>(std::move(op)); }

}  // namespace telegrad
