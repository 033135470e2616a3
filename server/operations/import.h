// Import: a model file becomes a stored graph and a buffer for each of its weights, on a thread
// that compiles; what follows waits. After an error neither the handles nor the graph exist.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "server/data/payload.h"
#include "server/session/operation.h"
#include "server/tenant/imported_model.h"

namespace telegrad {

struct ImportOp {
  // Reads, verifies and hashes; called once, on a worker thread. The file outlives the result.
  std::function<absl::StatusOr<ImportedModel>(std::string_view file, Budget*)> decode;
  std::unique_ptr<Payload> payload;  // the file, unless it is in
  uint64_t handle = 0;               // the first `bytes` bytes of this buffer
  uint64_t bytes = 0;
  uint64_t first_handle = 0;  // of the weights: this one and those after it
  std::string device = {};    // of the weights
  bool compile = false;
};
struct ImportResult {
  Digest hash;
  std::shared_ptr<const std::vector<ImportedSlot>> slots;
  std::shared_ptr<const ImportedInterface> interface;
  int64_t slot_bytes = 0;  // that these take

  int64_t kept_bytes() const { return slot_bytes; }
};

std::unique_ptr<Action> MakeAction(ImportOp op);

}  // namespace telegrad
