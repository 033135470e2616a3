#include "engine/types/machine_costs.h"

#include <iterator>

namespace telegrad {
namespace {

// Of rows that several kernels reduce, a byte took the time of 38 operations, in gradients of an
// attention whose scores were in memory; the price is more, because others can use the memory.
// Measured on a processor with vectors of 64 bytes: a simple operation of one f32 element costs
// about 0.02 ns, 4 bytes through the second-level cache about 0.15 ns and through memory 0.5 ns, a
// launch about 1 us.
constexpr ScheduleCosts kSchedule{.load_byte = 0.5,
                                  .store_byte = 6,
                                  .launch = 20'000,
                                  .division = 6,
                                  .gather = 4,
                                  .inner_reduction = 3,
                                  .scalar_reduction = 8,
                                  .scalar_term = 4,
                                  .near = 12,
                                  .near_load_byte = 0.5,
                                  .near_store_byte = 1,
                                  .spread = 32'768,
                                  .busy = 16,
                                  .shared = 8,
                                  .product_term = 1.2,
                                  .rows_byte = 64,
                                  .tile = 16,
                                  .slice_bytes = 512 * 1024,
                                  .panel_bytes = 256 * 1024,
                                  .shared_bytes = 4 * 1024 * 1024,
                                  .row_block = 64,
                                  .least_block = 16,
                                  .block_step = 8,
                                  .block_update = 4,
                                  .block_test = 1.02,
                                  .kept_bytes = int64_t{1} << 20,
                                  .kept_rows = 64,
                                  .least_rows = 8,
                                  .kept_terms = 256,
                                  .dots = 1 << 15,
                                  .spread_places = 8,
                                  .split = {.few_results = 16,
                                            .parts = 64,
                                            .elements = int64_t{1} << 17,
                                            .part_elements = int64_t{1} << 22},
                                  .transformed_input = 48,
                                  .transformed_product = 38,
                                  .transformed_weight = 27};

// A thread's elements of a tile are computed one after the other, so none waits for another.
constexpr ScheduleCosts WithoutLanes() {
  ScheduleCosts costs = kSchedule;
  costs.scalar_term = 1;
  return costs;
}

// Measured on one that loads twice in each cycle.
constexpr ThreadCosts kThread{.operation = 0.5,
                              .division = 16,
                              .wide = 2,
                              .chains = 8,
                              .load = 0.5,
                              .store = 1,
                              .unaligned = 0.3,
                              .aligned_bytes = 32,
                              .shuffle = 0.8,
                              .lane_sum = 2,
                              .lane_gate = 0.7,
                              .branch = 1.5,
                              .gather = 1.6,
                              .scatter = 3.2,
                              .apart = 2,
                              .copy = 0.5,
                              .loop = 1.5,
                              .exposed = 0.2,
                              .wake = 30'000,
                              .evicted = 4,
                              .second_level = 1.0 / 26,
                              .shared = 1.0 / 60,
                              .missed = 0.12,
                              .missed_in_stream = 0.05,
                              .line_bytes = 64,
                              .page_bytes = 4096,
                              .first_level_bytes = 32 << 10,
                              .near_rows = 1024,
                              .panel_bytes = 768 << 10,
                              .kept = 0.75,
                              .kept_in_stream = 0.3,
                              .copy_reads = 6,
                              .copied_rows = 64,
                              .dots_ahead = 4,
                              .innermost = 4000,
                              .replicated = 64,
                              .unrolled = 200,
                              .unrolled_masks = 320,
                              .strip_bytes = 2 * 4096,
                              .piece_bytes = 256,
                              .strip_rows = 8,
                              .kept_pages = 1024,
                              .result_bytes = 16 << 20};

// Multiples of instructions of 16 x 8 x 16, and of 16 x 16 x 16. At most 64 registers for sums and
// 24 for fragments where these are of 32 threads.
constexpr ProductTile kInstructionTiles[] = {
    {2, 2, 2 * 16, 8 * 8, 2 * 16},
    {2, 2, 2 * 16, 4 * 8, 2 * 16},
    {2, 2, 16, 4 * 8, 2 * 16},
    {2, 2, 16, 2 * 8, 2 * 16},
};
// Of warps whose lanes load fragments as rows of 8 x 8 matrices: the largest has 128 registers for
// sums and 32 for fragments.
constexpr ProductTile kMatrixTiles[] = {
    {2, 2, 4 * 16, 8 * 8, 2 * 16}, {2, 2, 2 * 16, 8 * 8, 2 * 16}, {2, 2, 2 * 16, 4 * 8, 2 * 16},
    {2, 2, 16, 4 * 8, 2 * 16},     {2, 2, 16, 2 * 8, 2 * 16},
};
constexpr ProductTile kSkinnyTiles[] = {{1, 4, 16, 2 * 8, 4 * 16}, {1, 2, 16, 2 * 8, 4 * 16}};
constexpr ProductTile kRegisterTiles[] = {
    {16, 16, 8, 8, 8}, {16, 16, 4, 4, 8}, {8, 16, 4, 4, 8}, {8, 8, 4, 4, 8}};

constexpr GroupCosts kGroup{.threads = 256,
                            .few_threads = 128,
                            .step = 32,
                            .alone = 32,
                            .elements = 8,
                            .accumulators = 4,
                            .replicated = 64,
                            .terms = 8,
                            .short_row = 16,
                            .busy = 8,
                            .resident = 2,
                            .local_bytes = 16,
                            .banks = 8,
                            .ring = 4,
                            .block_ring = 3,
                            .copied = 10,
                            .instruction_rate = 8,
                            .launch = 200'000,
                            .partial = 20,
                            .part_keys = 512,
                            .apart = 25,
                            .sector = 80,
                            .instruction_tiles = kInstructionTiles,
                            .register_tiles = kRegisterTiles};

constexpr GroupCosts WithTiles(GroupCosts costs, std::span<const ProductTile> tiles,
                               std::span<const ProductTile> skinny) {
  costs.instruction_tiles = tiles;
  costs.skinny_tiles = skinny;
  costs.swizzles = true;
  return costs;
}
constexpr GroupCosts kNvidiaGroup = WithTiles(kGroup, kMatrixTiles, kSkinnyTiles);

// Threads go on behind a load until they need what it loads. Two of the tiles above, in two places
// each, have room in 64 KiB.
constexpr GroupCosts WithRegisterRing(GroupCosts costs) {
  costs.register_ring = 2;
  return costs;
}
constexpr GroupCosts kAmdGroup = WithRegisterRing(kGroup);

// All have the same parts but for the tiles of NVIDIA's matrix instructions, as no other machine
// was measured than those named above. A target with workgroups is not asked for `thread`, another
// not for `group`.
constexpr MachineCosts kRows[] = {
    {.row = CostRow::kGeneral, .schedule = kSchedule, .thread = kThread, .group = kGroup},
    {.row = CostRow::kNvidia, .schedule = WithoutLanes(), .thread = kThread, .group = kNvidiaGroup},
    {.row = CostRow::kAmd, .schedule = WithoutLanes(), .thread = kThread, .group = kAmdGroup},
};

constexpr bool CostRowsInOrder() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].row) != i) return false;
  }
  return std::size(kRows) == static_cast<size_t>(kLastCostRow) + 1;
}
static_assert(CostRowsInOrder(), "a row for each CostRow, in their order");

}  // namespace

const MachineCosts& CostsOf(CostRow row) { return kRows[static_cast<size_t>(row)]; }

}  // namespace telegrad
