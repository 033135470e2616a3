// The schedule of a tensor graph: its kernels in an order that respects every read and write, and
// where their temporaries lie.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/types/machine_costs.h"
#include "engine/types/target.h"
#include "engine/types/var_value.h"

namespace telegrad {

// Memory that a kernel's argument stands for.
struct BufferRef {
  enum class Kind : uint8_t { kSlot, kTemporary } kind = Kind::kSlot;
  int32_t index = 0;   // the slot, or the index into Schedule::temporaries
  int64_t offset = 0;  // bytes into a temporary, a multiple of kTemporaryAlignment
  friend bool operator==(const BufferRef&, const BufferRef&) = default;
};

struct ScheduledKernel {
  FrozenGraph graph;                 // see KernelGraph
  std::vector<BufferRef> arguments;  // by PARAM slot of the kernel graph
  std::vector<std::string> reasons;  // why it is a kernel of its own, and computes what it does
  // The arguments that are slots into which no kernel of the schedule stores.
  std::vector<int32_t> weights = {};
  // The arguments that are slots into which it stores, and which no kernel of the schedule reads.
  std::vector<int32_t> results = {};
};

struct Temporary {
  int64_t bytes = 0;
  int64_t offset = 0;  // in the arena of the run
  int64_t first = 0;   // the kernel that writes it
  int64_t last = 0;    // the last one that reads it; from there on its memory is used again
};

struct Schedule {
  std::vector<ScheduledKernel> kernels;
  std::vector<Temporary> temporaries;
  int64_t arena_bytes = 0;
};

// What a schedule has to know of the target that it is for.
struct ScheduleOptions {
  const MachineCosts* machine = &CostsOf(CostRow::kGeneral);
  // Memory that a thread may keep for itself while it goes through a kernel's nests, where one
  // thread does all of an iteration of them; 0: there is none.
  int64_t private_bytes = 0;
  // Whether lowering reduces rows of scores in blocks: see score_rows.h.
  bool row_blocks = false;
  // Memory that a workgroup has for a block of each of its rows of scores; 0: there is none.
  int64_t row_bytes = 0;
  // Workgroups that leave no processor without one.
  int64_t row_groups = 0;
  // Of such rows, those that a warp has (engine/ir/product_tile.h).
  int64_t row_warp = 1;
  // Of f32 that a thread begins in a cycle, where convolutions may be computed from products of
  // transformed tiles (winograd.h); 0: they may not.
  int64_t multiply_adds = 0;
  // At most for each of the transformed weight, input and products of a convolution, and for the
  // parts of a product.
  int64_t transformed_bytes = int64_t{256} << 20;
  // Whose workgroups compute tiles of products in local memory: there each matrix product, or
  // convolution, is a kernel of its own, and may be divided for them (split_product.h).
  std::optional<Target> product_target = {};
  // Whether an instruction adds up products of bytes: see dot_product.h.
  bool dots = false;
  // Whether float sums are rounded alike in every schedule: see fixed_sums.h.
  bool fixed_sums = false;
  static ScheduleOptions For(const Target& target);
};

// `sink` is the root of a verified tensor graph; `variables` as in Legalize. All of scheduling:
// Legalize, the steps of graph_steps.h, ScheduleKernels.
absl::StatusOr<Schedule> ScheduleGraph(UOp sink, std::span<const VarValue> variables,
                                       Budget* budget, const ScheduleOptions& options = {});
inline absl::StatusOr<Schedule> ScheduleGraph(UOp sink, Budget* budget,
                                              const ScheduleOptions& options = {}) {
  return ScheduleGraph(sink, {}, budget, options);
}

// Only the last part: the kernels of the legalized graph, as it is.
absl::StatusOr<Schedule> ScheduleKernels(const FrozenGraph& legal, Budget* budget,
                                         const ScheduleOptions& options = {});

}  // namespace telegrad
