// A program decoded for the interpreter: instructions whose operands are places in one array of
// lanes (the frame), of which every thread has a copy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/ir/program.h"
#include "engine/reference/lane.h"

namespace telegrad::reference::internal {

// A scalar operand has stride 0, so it broadcasts by itself.
struct Operand {
  uint32_t at = 0;
  uint32_t stride = 0;
};

// An INDEX, as its users see it.
struct Address {
  uint32_t memory = 0;
  Operand index = {};
  Operand gate = {};
  DType type = DType::kVoid;  // of the index
  bool gated = false;
  uint32_t lanes = 1;
};

struct Instruction {
  Op op;
  uint32_t position;  // in the order
  uint32_t node;      // id in the graph
  uint32_t out = 0;
  uint32_t lanes = 1;
  LaneFn fn = nullptr;
  Operand src[3] = {};
  Address address = {};             // LOAD, STORE, ARRIVE, WAIT_PHASE, BUFFER (the memory only)
  AxisType axis = AxisType::kLoop;  // RANGE
  DType type = DType::kVoid;        // of the value; RANGE: of the index
  Lane start = 0;                   // REDUCE of no lanes
  // COPY_ASYNC, MMA_ASYNC: the first of its `addresses`. WAIT: of its `waits`, `lanes` many. RANGE:
  // its number among the parallel ones.
  uint32_t more = 0;
  uint32_t operation = 0;  // COPY_ASYNC, MMA_ASYNC: its number among them
  uint32_t exit = 0;       // RANGE, ROLE: the instruction after its END
};

struct Memory {
  enum class Kind : uint8_t { kArgument, kLocal, kRegister, kPhases };
  Kind kind;
  int64_t slot = 0;
  DType dtype = DType::kVoid;
  int64_t elements = 0;
  // Of kLocal and kRegister: where in the workgroup's or thread's storage; one byte of state for
  // each element. Of kPhases: `state_at` is the number of the first barrier.
  size_t data_at = 0;
  size_t state_at = 0;
  int64_t arrivals = 0;  // kPhases
};

// What an error calls it: "argument 0", "buffer 1", "mbarrier 0".
std::string NameOf(const Memory& memory);

struct Code {
  const Program* program = nullptr;
  std::vector<Instruction> instructions;
  std::vector<Address> addresses;
  std::vector<uint32_t> waits;   // instructions
  std::vector<Memory> memories;  // the arguments by slot, then the others
  std::vector<Lane> frame;       // constants in place
  // Bytes of data and elements of state that a thread and a workgroup have.
  size_t register_bytes = 0, register_elements = 0, local_bytes = 0, local_elements = 0;
  int64_t barriers = 0;        // phased ones
  uint32_t parallel = 0;       // parallel ranges,
  uint32_t groups = 0;         // the first ones of which are groups,
  uint32_t prefix = 0;         // and instructions up to the last of them
  std::vector<int64_t> local;  // sizes of the local and warp ranges
  int64_t threads = 1;         // of a workgroup
  uint32_t operations = 0;     // asynchronous instructions
};

// `variables` are the values of VARs by id.
absl::Status Decode(const Program& program, std::span<const int64_t> variables, Code* code);

}  // namespace telegrad::reference::internal
