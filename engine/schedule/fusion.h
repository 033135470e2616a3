// Which values of a tensor graph are put into memory, by which kernel, and why. Everything else is
// recomputed where it is used, inside the kernels of its users.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/types/machine_costs.h"

namespace telegrad {

// Why a value is materialized; kFused: it is not.
enum class Materialize : uint8_t {
  kFused,
  kRequested,  // CONTIGUOUS
  kReduction,  // it holds a reduction that does not fit into the loops of its users
  kSize,       // its kernel would grow without bound
  kExact,      // it is compared with itself, or with its own maximum
  kCost,       // recomputing it would cost more than a store and the loads
  kNear,       // recomputing it would cost more than keeping its row for the kernel's next nest
  kScatter,    // written in place, row by row
};

std::string_view Name(Materialize reason);

// One loop nest of a kernel: what it writes. All roots have the same elements, up to axes of
// size 1.
struct PlannedNest {
  // STOREs, and materialized values, which go to memory of their own. A SCATTER is alone.
  std::vector<uint32_t> roots;
};

// One launch. Its nests run one after another inside of the outermost loops that they share.
struct PlannedKernel {
  std::vector<PlannedNest> nests;
  int shared_loops = 0;     // 0: there is one nest
  int64_t shared_tile = 1;  // iterations of the last shared loop that each nest does together
  // Values that only these nests need: each thread keeps the part of the iteration that it is in.
  std::vector<uint32_t> kept;
  std::vector<std::string> reasons;
};

struct FusionPlan {
  std::vector<uint32_t> order;        // post-order of the graph
  std::vector<Materialize> decision;  // by node id
  std::vector<uint32_t> level;        // by node id: REDUCEs on the longest way down to inputs
  std::vector<PlannedKernel> kernels;
  // Materialized values that lie in the whole PARAM that the STORE writes.
  absl::flat_hash_map<uint32_t, uint32_t> aliases;
  bool materialized(uint32_t id) const { return decision[id] != Materialize::kFused; }
};

// A value of which the kernel that reads it keeps some rows: see recompute.h.
struct KeptRows {
  int values = 1;  // that the kernel keeps so
  int loops = 0;   // outermost ones of the value, in each iteration of which it has a row
};

struct FusionOptions {
  const ScheduleCosts& costs;
  // What a thread may keep for itself between the nests of a kernel; 0: nothing, it is stored.
  int64_t private_bytes = 0;
  // Whether a kernel may keep rows whose values it would otherwise compute twice
  // (Materialize::kNear). What is kept is rounded, and a sum of it is no sum of products, whose
  // order may be another.
  bool near_rows = true;
  // Whether lowering reduces rows of scores in blocks: see score_rows.h.
  bool row_blocks = false;
  // What a workgroup may keep of such rows, where no thread keeps anything else.
  int64_t row_bytes = 0;
  // Workgroups that leave no processor without one.
  int64_t row_groups = 0;
  // Of such rows, those that a warp has (engine/ir/product_tile.h).
  int64_t row_warp = 1;
  // Whether a kernel computes one matrix product at most: only then it has tiles in local memory.
  bool one_product = false;
  absl::flat_hash_map<uint32_t, KeptRows> rows = {};  // CONTIGUOUS nodes
  // Values that are computed in every kernel that needs them, unless they are asked for.
  absl::flat_hash_set<uint32_t> fused = {};
  // Sums of products that an instruction for bytes adds up, in a kernel without other nests.
  absl::flat_hash_set<uint32_t> sums_of_bytes = {};
  // Values whose nests store nothing else.
  absl::flat_hash_set<uint32_t> apart = {};
  // Roots (STOREs and values) whose kernels write nothing else.
  absl::flat_hash_set<uint32_t> alone = {};
};

// `sink` is the root of a verified tensor graph.
absl::StatusOr<FusionPlan> PlanFusion(UOp sink, const FusionOptions& options, Budget* budget);

}  // namespace telegrad
