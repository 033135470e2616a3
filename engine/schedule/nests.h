// Kernels that follow each other become nests of one where each iteration of their common outer
// loops only needs what that iteration itself has stored: a launch less, and the slice is still in
// the cache. Scores, softmax and weighted sum of an attention are one kernel for each head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/drafts.h"

namespace telegrad {

struct StoredValue {
  uint32_t node;
  int writer;                      // a draft
  std::vector<KernelUse> readers;  // and where they need it
};

// Drafts that are one kernel.
struct NestGroup {
  std::vector<int> drafts;     // writers before readers
  int shared = 0;              // outermost loops
  int64_t tile = 1;            // iterations of the last shared loop that each nest does together
  std::vector<uint32_t> kept;  // values that nobody else needs, in private memory
};

// Each draft that is left is in one group. `order`: a post-order of the graph. `values` by
// consumers first. A thread may keep up to `private_bytes` of the options of a group's values for
// itself.
std::vector<NestGroup> JoinNests(const Graph& graph, std::span<const uint32_t> order,
                                 const Drafts& drafts, const std::vector<StoredValue>& values,
                                 const FusionOptions& options);

}  // namespace telegrad
