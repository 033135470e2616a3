// A kernel decoded once, ready to run: a flat array of instructions whose operands are numbers of
// register slots. Immediate values and special registers have slots too, filled before the kernel
// starts, so that an instruction reads all its operands the same way.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/cuda/ptx/counts.h"
#include "tests/fakes/cuda/ptx/module.h"

namespace fakecuda {

class Warp;
struct Instruction;

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = ~uint32_t{0};

// Executes an instruction for the given lanes, of which there is at least one.
using Execute = void (*)(Warp& warp, const Instruction& instruction, uint32_t lanes);

// How an instruction leads to the next one.
enum class Flow : uint8_t {
  kNext,
  kBranch,       // to `target`
  kBranchTable,  // to tables[target][slot 0]
  kExit,
  kBarrier,     // waits for other warps: slot 0 the barrier, slot 1 the threads, if `count`
  kCollective,  // waits for other lanes: slot 0 holds which, or all if `whole_warp`
  kTryWait,     // executes; where predicate slot 0 comes out false, others get their turn
};

struct Instruction {
  Execute execute = nullptr;
  Flow flow = Flow::kNext;
  InstructionKind kind = InstructionKind::other_instructions;
  Space space = Space::kGeneric;
  bool guard_negated = false;
  bool whole_warp = false;
  uint8_t bytes = 0;        // of one element in memory
  uint8_t count = 0;        // elements of a vector, registers of a matrix
  uint8_t signed_from = 0;  // memory bits to sign-extend from; 0: zero-extend
  uint8_t width = 0;        // bits of the destination register
  int guard = -1;           // a predicate's slot
  int line = 0;
  uint32_t target = 0;
  uint32_t flags = 0;  // what the family that decoded it wants to know
  int64_t offset = 0;  // of an address
  std::array<uint32_t, 16> slot = {};
};

enum class Special : uint8_t { kTid, kNtid, kCtaid, kNctaid, kLane, kWarp, kWarps, kLaneMask };

struct SpecialSlot {
  uint32_t slot = 0;
  Special what = Special::kTid;
  int axis = 0;  // of the first four; of kLaneMask: eq, lt, le, gt, ge
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::vector<std::vector<uint32_t>> tables;
  uint32_t slots = 0;
  std::vector<uint8_t> register_bits;  // of the first slots, which are the declared registers
  std::vector<std::pair<uint32_t, uint64_t>> constants;
  std::vector<SpecialSlot> specials;
  std::vector<Variable> parameters;
  uint64_t parameter_bytes = 0;
  uint64_t local_bytes = 0;
  uint64_t shared_bytes = 0;  // without what is given at launch
  std::array<uint32_t, 3> required_threads = {0, 0, 0};
  uint32_t maximal_threads = 1024;
};

// Where the windows of shared and local memory and of a kernel's parameters lie in the generic
// address space, and the first address of shared memory: not 0, as on the device, so that 0 stays
// no address.
inline constexpr uint64_t kSharedWindow = uint64_t{0x7a} << 40;
inline constexpr uint64_t kLocalWindow = uint64_t{0x7b} << 40;
inline constexpr uint64_t kParamWindow = uint64_t{0x7c} << 40;
inline constexpr uint64_t kWindowBytes = uint64_t{1} << 32;
inline constexpr uint64_t kSharedBegin = 1024;

}  // namespace fakecuda
