// Has: whether the tenant has put a graph, which waits for nothing; or also what a run of it is
// predicted to take, for which it is compiled on a thread for that.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/execution/executable.h"
#include "engine/types/form_cost.h"
#include "engine/types/var_value.h"
#include "server/session/operation.h"

namespace telegrad {

struct HasOp {
  std::string hash;
  bool compile = false;
  std::vector<std::string> devices = {};  // as in RunOp
  std::vector<VarValue> variables = {};
};
struct HasResult {
  bool has = false;
  std::optional<FormCost<RunCost>> cost = {};  // where it was compiled
};

std::unique_ptr<Action> MakeAction(HasOp op);

}  // namespace telegrad
