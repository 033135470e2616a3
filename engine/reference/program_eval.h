// The reference interpreter of programs: executes the linear order exactly as engine/ir/program.h
// defines it, element by element, for programs of any target.
//
// The threads of a workgroup take turns in one loop: each runs until it waits for another (a
// barrier, a phase, a matrix instruction or shuffle of its scope). Workgroups run one after
// another. Every order that the program permits can be tried: with a seed, threads are preempted at
// random points, and workgroups run and copies complete in random order. A dependence on an order
// that the program does not enforce is an error: see below.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "engine/ir/program.h"

namespace telegrad::reference {

struct RunOptions {
  // By VAR id.
  std::span<const int64_t> variables = {};
  // Threads, workgroups and copies in an order drawn from it; without one, as late as possible.
  std::optional<uint64_t> seed = std::nullopt;
  // When asynchronous operations read their sources; both are allowed, and destinations are always
  // written at completion.
  bool sources_at_issue = false;
  // Instructions that all threads together may execute.
  int64_t max_steps = int64_t{1} << 42;
  // Where to add those that they have executed.
  int64_t* steps = nullptr;
};

// Runs the iterations [begin, end) of the thread range, or the workgroups of these numbers (of a
// program without either: [0, 1)), on buffers[slot].
//
// INVALID_ARGUMENT: the program is not well formed (Verify), a buffer is missing or too short, a
// variable is missing or outside of its bounds, or the iterations are outside of the program's.
// RESOURCE_EXHAUSTED: the program's own memory, or max_steps.
// INTERNAL: the program itself is wrong. "program p, node 17 (load): thread 3 of workgroup [0, 1],
// lane 2 reads element 5 of buffer 1, ..." names the position in the order, the thread and the
// element. These are found:
//   an access outside of a buffer where its gate holds,
//   a read of an element of the program's own memory that has not been written,
//   two accesses to an element, one of them a write, by threads, workgroups or asynchronous
//     operations that nothing orders; an operation is under way until its WAIT or phase,
//   a barrier, phase or matrix instruction at which threads wait for ever,
//   a WAIT for an operation that the thread has never started, one that nothing waits for, a phase
//     with too many arrivals or with bytes that never come.
// The buffers then hold what was written before.
absl::Status Run(const Program& program, std::span<const std::span<uint8_t>> buffers, int64_t begin,
                 int64_t end, const RunOptions& options = {});

}  // namespace telegrad::reference
