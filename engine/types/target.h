// What code is made for: part of every cache key.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/types/dtype.h"
#include "engine/types/matrix_unit.h"
#include "engine/types/parallel_level.h"

namespace telegrad {

// What completes the tiles of a range whose size they do not divide. A gate costs a loop its time;
// workgroups have iterations beyond the size in any case, of threads that do not get one.
enum class TilePadding : uint8_t {
  kMovesBack,  // the last tile begins earlier
  kGates,      // the size is rounded up, and what is beyond it is gated
};

// Rows of machine_costs.cc: what processors that were not measured themselves take, with or without
// workgroups, and where the tiles of products are others.
enum class CostRow : uint8_t { kGeneral, kNvidia, kAmd };
inline constexpr CostRow kLastCostRow = CostRow::kAmd;

// What a row of targets.def says, and what was found of one processor.
struct Target {
  std::string arch;       // "x86-64", "sm_90a", "gfx942", "opencl-c"
  std::string cpu;        // LLVM's processor name, for tuning
  std::string features;   // "+avx2,+fma,...", sorted: what the code may use
  int vector_bytes = 16;  // width of the widest useful vector register
  int vector_registers = 16;
  int vector_rate = 2;                     // products of whole vectors that begin in one cycle
  int threads = 1;                         // workers that run one launch
  int64_t cache_bytes = int64_t{1} << 20;  // that each of them has to itself,
  int64_t first_level_bytes = 32 << 10;    // and of the cache between it and them
  // Results of at least so many bytes, if nothing else is read or written there, go past the caches
  // to memory; 0: none.
  int64_t stream_bytes = 0;
  // Of a thread, that one iteration of what a launch is cut by takes at most, as far as its loops
  // allow: about a millisecond. Longer ones hold a thread while others wait for it.
  int64_t unit_cycles = 5'000'000;
  // Whether convolutions may be sums of other products than their own (engine/schedule/winograd.h).
  bool winograd = false;
  // Whether the order in which a float sum is added follows from what is summed alone, not from the
  // batch, the threads or the moves (engine/lowering/order_sums.h). For targets without workgroups.
  bool deterministic = false;
  // Element types of its arithmetic. Of others it loads, stores, selects and moves the bits.
  DTypeSet computes = {DType::kBool,   DType::kInt8,    DType::kInt16,  DType::kInt32,
                       DType::kInt64,  DType::kUInt8,   DType::kUInt16, DType::kUInt32,
                       DType::kUInt64, DType::kFloat32, DType::kFloat64};
  // Types besides that it converts to f32 and, with CAST's rounding, from f32.
  DTypeSet converts;
  // Whether an instruction computes DOT4 of whole vectors: four products of bytes for each i32.
  bool dots = false;
  // Whether an instruction computes EXP2 of f32, within the bound that ops.def states.
  bool exp2 = false;
  // Of a device that runs workgroups of many threads; `threads` is then how many workgroups' worth
  // of processors it has, and `vector_bytes` the widest access of one thread.
  int group_threads = 1;    // at most in a workgroup; 1: programs have one thread a worker
  int warp = 1;             // of these execute together and exchange values; 1: none do
  int64_t local_bytes = 0;  // at most that a workgroup has of memory of its own
  bool stages = true;       // that is nearer than other memory, so tiles are worth copying there
  int async_bytes =
      0;  // its threads go on while pieces of at least so many are copied; 0: none are
  int vector_lanes = 1024;  // the most that a vector has, whatever its elements
  int align = 1;            // bytes: where a buffer must start, beyond its element
  int index_bits = 64;      // of an index that fits into them: 32 or 64
  MatrixUnit matrix = MatrixUnit::kNone;
  ParallelLevels levels = {ParallelLevel::kWorkers, ParallelLevel::kLanes};
  TilePadding padding = TilePadding::kMovesBack;
  // Whether what translates its code afterwards orders instructions and assigns registers anew.
  bool reorders = false;
  CostRow costs = CostRow::kGeneral;  // what its operations, accesses and launches cost

  bool has(ParallelLevel level) const { return levels.Has(level); }
  // f32 of one of a thread's vectors whose elements are iterations of a range.
  int64_t lanes() const { return has(ParallelLevel::kLanes) ? vector_bytes / 4 : 1; }

  // Whether a row of `bytes` an element that is shorter than a vector is worth a masked load, or
  // store. Masked stores of AVX2 are slower than storing the elements one by one.
  bool masks_rows(bool store, int64_t bytes) const {
    return vector_bytes >= (store ? 64 : 32) && bytes >= 4;
  }

  // Every field, unambiguously: equal keys mean interchangeable code.
  std::string Key() const;
  // What Key() made; nullopt for any other text.
  static std::optional<Target> FromKey(std::string_view key);

  friend bool operator==(const Target&, const Target&) = default;
};

// Elements of a row of memory that is accessed as a vector where lanes lie in other rows.
inline constexpr int64_t kLeastRow = 4;

enum class TargetKind : uint8_t {
#define TARGET(kind, ...) kind,
#include "engine/types/targets.def"
#undef TARGET
};
// Of a row of targets.def, with one processor.
Target TargetOf(TargetKind kind);

// The processor that this process runs on, without what only a compiler has names for: `cpu` and
// `features` are empty. `threads` below 1 means as many as the hardware has.
Target HostShape(int threads);

// What a thread of a CPU does in a second at its usual rather than its best: the server's
// predictions and the time axis of explain's page.
inline constexpr double kCpuThreadFlops = 40e9;
inline constexpr double kCpuThreadBytes = 12e9;

// An NVIDIA GPU of compute capability `major`.`minor` with so many multiprocessors, of which each
// gives a workgroup up to `local_bytes` of shared memory. nullopt below 8.0: the oldest that code
// is made for. Its `arch` is one that LLVM 19 knows, "sm_80" or "sm_90a"; a driver translates code
// for sm_80 to all later processors.
std::optional<Target> NvidiaTarget(int major, int minor, int multiprocessors, int64_t local_bytes);

// An AMD GPU of amd_processors.def.
struct AmdProcessor {
  std::string_view name;
  int wave;                   // threads that execute together
  std::string_view features;  // for LLVM
  MatrixUnit matrix;
  int flops_per_cycle;  // of a multiprocessor, f32
  int multiprocessors;  // of the largest product
};
std::span<const AmdProcessor> AmdProcessors();
const AmdProcessor* FindAmdProcessor(std::string_view name);  // null: code is not made for it
inline constexpr int64_t kAmdLocalBytes = int64_t{64} << 10;
Target AmdTarget(const AmdProcessor& processor, int multiprocessors,
                 int64_t local_bytes = kAmdLocalBytes);

// OpenCL C, for the device and driver that `cpu` names.
inline constexpr char kOpenClArch[] = "opencl-c";

// A GPU of OpenCL 1.2 with so many compute units and what all have, and one that is a processor:
// its threads have vector registers of so many bytes, and its local memory is not nearer than
// other.
Target OpenClTarget(int units);
Target OpenClProcessor(int units, int vector_bytes);

}  // namespace telegrad
