// Free: ends handles; work under way keeps their memory. It waits for nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/session/operation.h"

namespace telegrad {

struct FreeOp {
  std::vector<uint64_t> handles;
};

std::unique_ptr<Action> MakeAction(FreeOp op);

}  // namespace telegrad
