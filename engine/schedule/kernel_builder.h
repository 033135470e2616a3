// Turns stored values of a tensor graph into a kernel graph: movement ops dissolve into index
// arithmetic on ranges, consumers first, and everything that is not in memory is computed in place.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Memory is named by a tensor-graph node: a PARAM by itself, a stored value by its own node. A copy
// that the scheduler makes (of a STORE's value, or of a PARAM as it was before the run) has
// kCopyBit set. That of a SCATTER is the SCATTER's memory while it holds no more than its base.
using MemoryId = uint32_t;
inline constexpr MemoryId kCopyBit = 0x80000000;

// A kernel before lowering. PARAM slot i of the graph is the kernel's argument i.
struct KernelGraph {
  // SINK of an END(STORE(INDEX(PARAM, ...), value), ranges...) for each output. Those of one nest
  // are over the same ranges. Of several nests, each is END(END(STORE, ranges...), shared
  // ranges...) and its inner END is what an AFTER names where another nest reads what it has
  // written.
  FrozenGraph graph;
  std::vector<MemoryId> arguments;  // what the arguments stand for
  std::vector<MemoryId> reads;      // what is loaded; an AFTER by its own node, not by its PARAM's
  // A written argument is also loaded, and not only at the element that is stored.
  bool reads_target_elsewhere = false;
  // It would need one buffer as it is before and after a STORE; its graph confuses the two.
  bool reads_several_versions = false;
};

struct KernelOutput {
  UOp value;              // what is computed
  UOp target;             // the view of a PARAM (or AFTER) that is written, or invalid:
  MemoryId memory = 0;    // then the new memory, of value's shape, that is written. Of a SCATTER
                          // named by itself, only the rows that the index names: a request to its
                          // kCopyBit comes first
  bool copy = false;      // value already lies in `memory`, and is copied from there into target
  bool computes = false;  // value is computed here, though others read it from memory
};

// A loop nest. Outputs of the same shape, up to axes of size 1.
struct KernelNest {
  std::vector<KernelOutput> outputs;
};

struct KernelRequest {
  // One after another; a later one may read what an earlier one has written in the same iteration
  // of the `shared_loops` outermost loops, which are those of all of them. An iteration of the last
  // of these stands for `shared_tile` ones, which each nest goes through for itself; where that
  // does not divide its size, the last tile is moved back.
  std::vector<KernelNest> nests = {};
  int shared_loops = 0;
  int64_t shared_tile = 1;
  // Values of which each iteration keeps its part in private memory.
  std::vector<MemoryId> kept = {};
  // By node id, FusionPlan::level: REDUCEs of one level reduce together where they can.
  std::span<const uint32_t> level = {};
};

// Answers how a value is read: from which memory, or nullopt if it is computed in place.
using ReadFrom = std::function<std::optional<MemoryId>(uint32_t node)>;

absl::StatusOr<KernelGraph> BuildKernel(const KernelRequest& request, const ReadFrom& read_from,
                                        Budget* budget);

}  // namespace telegrad
