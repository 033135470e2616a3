// Put: a graph is decoded, verified and stored under its hash, and compiled if it was asked for, on
// a thread for that; what follows waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/execution/executable.h"
#include "server/session/operation.h"
#include "server/tenant/imported_model.h"

namespace telegrad {

struct PutOp {
  // Decodes, verifies and hashes; called once, on a worker thread.
  std::function<absl::StatusOr<VerifiedGraph>(Budget*)> decode;
  int64_t bytes = 0;  // serialized
  bool compile = false;
  std::vector<std::string> devices = {};  // to compile for, by the graph's numbers; see Placement
};
struct PutResult {
  Digest hash;
  std::optional<RunCost> cost = {};  // where it was compiled
};

std::unique_ptr<Action> MakeAction(PutOp op);

}  // namespace telegrad
