// Drops every handle that exists. An unknown one is an error and does not keep the others.
#include "server/operations/free.h"

#include <utility>

#include "engine/base/status.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

class FreeAction final : public Action {
 public:
  explicit FreeAction(FreeOp op) : op_(std::move(op)) {}

  bool is_request() const override { return false; }

  Step Do(Turn& turn) override {
    absl::Status status;
    for (const uint64_t handle : op_.handles) {
      if (turn.handles().contains(handle)) {
        turn.handles().Drop(handle);
      } else if (status.ok()) {
        status = NotFound("free: unknown handle ", handle);
      }
    }
    return status.ok() ? Step::kDone : turn.Fail(status);
  }

 private:
  const FreeOp op_;
};

}  // namespace

std::unique_ptr<Action> MakeAction(FreeOp op) {
  return std::make_unique<FreeAction>(std::move(op));
}

}  // namespace telegrad
