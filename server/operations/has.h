// Has: whether the tenant has put a graph. It waits for nothing.
#pragma once

#include <memory>
#include <string>

#include "server/session/operation.h"

namespace telegrad {

struct HasOp {
  std::string hash;
};
struct HasResult {
  bool has = false;
};

std::unique_ptr<Action> MakeAction(HasOp op);

}  // namespace telegrad
