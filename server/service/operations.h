// The messages of operations, as the plain structs that server/operations takes.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/data/payload.h"
#include "server/session/operation.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {

// Whether bytes travel with it.
bool TakesData(const v1::ExecuteRequest& request);

// Any operation but Open. Takes what is large out of `request`; those with data come with their
// payload.
absl::StatusOr<Operation> ToOperation(v1::ExecuteRequest& request,
                                      std::unique_ptr<Payload> payload);

}  // namespace telegrad
