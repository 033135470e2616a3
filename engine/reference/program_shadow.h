// Detects data races: the happens-before order of a program's memory accesses, by vector clocks.
//
// Every thread of a workgroup and every phased barrier is an agent with a clock. A thread's vector
// clock says up to which of every agent's ticks it is ordered behind: barriers join their threads',
// arrivals give theirs to a phase, a wait for the phase takes it. Each element of memory keeps the
// last write and the reads since; an access conflicts with one of those that its thread's clock
// does not cover. An asynchronous operation is an access of its own: nothing is ordered behind it
// until it completes, and then what is ordered behind that tick of the agent that completed it.
// Workgroups are never ordered with each other.
//
// This finds every pair of conflicting accesses in the executed program that nothing orders,
// whether or not the interpreter happened to execute them in an order with visible harm. (The
// scheme is FastTrack's, Flanagan and Freund 2009, with operations added.)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/reference/program_code.h"

namespace telegrad::reference::internal {

using VectorClock = std::vector<uint32_t>;  // by agent: the threads, then the phased barriers

// One access: by a thread at a tick of its clock, or by an asynchronous operation.
struct Access {
  static constexpr uint32_t kNone = 0xffffffff, kOperation = 0x80000000;
  uint32_t agent = kNone;  // a thread, or kOperation and the number of an operation
  uint32_t clock = 0;
  uint32_t position = 0;  // of the node, for errors
  bool exists() const { return agent != kNone; }
  bool is_operation() const { return exists() && (agent & kOperation) != 0; }
  uint32_t operation() const { return agent & ~kOperation; }
};

struct Conflict {
  Access with;
  bool write = false;
  bool under_way = false;  // `with` is an operation that is not complete
  // `with` was in another workgroup, of this number.
  std::optional<uint32_t> group = std::nullopt;
};

class Shadow {
 public:
  // The tick at which a thread's part of an operation has completed.
  struct Completion {
    uint32_t agent = Access::kNone;
    uint32_t clock = 0;
  };

  // Tracks arguments and local memory. RESOURCE_EXHAUSTED where they are too large.
  absl::Status Start(const Code& code);
  // Resets the state of local memory and removes all operations.
  void StartGroup(const Code& code, uint32_t group);

  // A new operation with that many parts; its number.
  uint32_t AddOperation(size_t parts);
  void Complete(uint32_t operation, size_t part, Completion at) {
    operations_[operation][part] = at;
  }
  std::span<const Completion> completions(uint32_t operation) const {
    return operations_[operation];
  }

  // `me` touches an element at `clock`, that of the thread that executes or starts it.
  std::optional<Conflict> Read(uint32_t memory, int64_t element, Access me,
                               const VectorClock& clock);
  std::optional<Conflict> Write(uint32_t memory, int64_t element, Access me,
                                const VectorClock& clock);

 private:
  struct Cell {
    Access write;
    Access read;           // one since, and the only one if `readers` is 0
    uint32_t readers = 0;  // one more than the index of the list of all reads since
    uint32_t write_group = 0;
    uint32_t read_group = 0;  // of `read` and `readers`
    // A read by an earlier workgroup; one is enough, since every later write conflicts with it.
    uint32_t past_group = Access::kNone;
    uint32_t past_position = 0;
  };
  // The elements of packed types share the cell of their byte.
  struct Cells {
    int64_t per_byte = 1;
    std::vector<Cell> cells;
  };

  Cell& At(uint32_t memory, int64_t element) {
    Cells& c = memories_[memory];
    return c.cells[static_cast<size_t>(element / c.per_byte)];
  }
  bool Ordered(const Access& earlier, const Access& me, const VectorClock& clock) const;
  std::optional<Conflict> ConflictWithWrite(const Cell& cell, const Access& me,
                                            const VectorClock& clock) const;
  void LeavePast(Cell* cell) const;
  Conflict Describe(const Access& with, bool write) const;

  uint32_t group_ = 0;
  std::vector<Cells> memories_;  // by number; empty for registers and phases
  std::vector<std::vector<Completion>> operations_;
  std::vector<std::vector<Access>> readers_;
};

}  // namespace telegrad::reference::internal
