// Shared by the verifiers of the levels: the nodes under verification and how errors call them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad::internal {

struct VerifyWalk {
  VerifyWalk(const Graph& g, std::vector<uint32_t> nodes, std::span<const uint32_t> names)
      : graph(g), order(std::move(nodes)), position(g.size(), 0), numbers(names) {
    for (uint32_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  }

  template <typename... Args>
  absl::Status Bad(uint32_t id, const Args&... args) const {
    return InvalidArgument("node ", id < numbers.size() ? numbers[id] : position[id], " (",
                           Name(graph.op(id)), "): ", args...);
  }
  // The same for node `id`'s source `i`, of which something else was expected.
  absl::Status BadSource(uint32_t id, size_t i, std::string_view expected) const {
    return Bad(id, "source ", i, " is ", Name(graph.op(graph.src(id)[i])), ", expected ", expected);
  }

  const Graph& graph;
  std::vector<uint32_t> order;
  std::vector<uint32_t> position;  // by id
  std::span<const uint32_t> numbers;
};

absl::Status VerifyTensor(const VerifyWalk& walk, uint32_t root, Budget* budget);
absl::Status VerifyKernel(const VerifyWalk& walk, uint32_t root);
// How node `id` uses addresses and memory, the same on the kernel and the program level.
absl::Status VerifyAccess(const VerifyWalk& walk, uint32_t id);

}  // namespace telegrad::internal
