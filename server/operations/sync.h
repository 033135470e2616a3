// Sync: is answered once everything before it has been.
#pragma once

#include <memory>

#include "server/session/operation.h"

namespace telegrad {

struct SyncOp {};

inline std::unique_ptr<Action> MakeAction(SyncOp /*op*/) { return nullptr; }

}  // namespace telegrad
