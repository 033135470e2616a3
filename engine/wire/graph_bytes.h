// A tensor graph as bytes (the serialized graph.proto), for callers that do not include protobuf.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad {

std::string GraphBytes(UOp root);

// Admits a graph from outside, see FromProto. Also INVALID_ARGUMENT for bytes that are no
// graph.proto, RESOURCE_EXHAUSTED for more than kMaxGraphBytes.
absl::StatusOr<FrozenGraph> GraphFromBytes(std::string_view bytes, Budget* budget);

}  // namespace telegrad
