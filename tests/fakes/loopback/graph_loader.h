// The receiving side of a device of the tensor level: graphs that arrive as bytes are decoded,
// verified, scheduled and compiled for a local device.
#pragma once

#include <memory>

#include "engine/base/budget.h"
#include "engine/execution/executable_cache.h"
#include "tests/fakes/loopback/graph_program.h"

namespace telegrad {

// `limits` are those of one graph. Errors are those of the graph's admission and compilation.
GraphLoader MakeGraphLoader(std::shared_ptr<ExecutableCache> cache, const Budget::Limits& limits);

}  // namespace telegrad
