// A program: the linear, last form of a kernel, ready to render.
//
// `order` lists node ids in execution order; a renderer or interpreter handles them one after
// another:
//   RANGE opens a loop over [0, src 0), END with the one source RANGE closes it; loops nest
//     properly. A range of AxisType::kThread (at most one, outermost, first) runs over the launch's
//     [begin, end) within [0, src 0) instead. Where src 0 is computed, it runs over that part of
//     [0, src 0) which [begin, end) is of the program's iterations: launches that share these
//     evenly share those evenly, too.
//   PARAM(slot) is the flat buffer that the launch passes as argument `slot`, VAR(id) the value
//   that
//     it passes for that id. BUFFER(register) is private.
//   INDEX addresses elements; its gate (src 2), where there is one, gates the LOAD (0 where false),
//     the STORE (skipped where false) and the others as ops.def says. Every access without a gate
//     has been proved inside its buffer.
//   AFTER(buffer, effects...) is the buffer src 0 itself; it only keeps loads before and after an
//     effect apart. It executes nothing.
//   Values are scalars (shape []) or vectors (shape [n]), n lanes; a scalar operand broadcasts.
//     IOTA [n] is the vector 0..n-1. A vector index is contiguous when it is IOTA or ADD(scalar,
//     IOTA). REDUCE(kind, 0) of one vector source reduces its lanes to shape [1]; RESHAPE to []
//     makes that a scalar.
//   Effects (STORE) happen in order; everything else is a pure value at its first appearance.
//
// Programs for many threads:
//   They open their parallel ranges first: up to three of kGroup, up to three of kLocal, one of
//     kWarp of the warp's size; all else is inside of these. Every iteration of the group ranges is
//     a workgroup, its number the row-major position in them; those in the launch's [begin, end)
//     run. Where src 0 of one is computed, those beyond it do nothing. Every iteration of the
//     others is a thread of it; all of them run at once. The thread number is the row-major
//     position in the local and warp ranges, its warp that number divided by the warp's size, its
//     warpgroup its warp divided by 4. A cluster is one workgroup. ROLE opens a part that only some
//     warps run.
//   BUFFER(local) and MBARRIER belong to the workgroup, unwritten and in phase 0 when it starts.
//     Registers belong to a thread.
//   BARRIER(scope), SHUFFLE, MMA and MMA_ASYNC wait for all threads of their scope within the open
//     role; each of these comes to the same node. Only BARRIER, and ARRIVE with WAIT_PHASE, order
//     memory among threads; nothing orders it among workgroups.
//   COPY_ASYNC and MMA_ASYNC run beside the threads until their completion: the WAIT of the thread
//     that started it, or the phase that counts its bytes. Meanwhile no access may touch what it
//     writes (but for other MMA_ASYNC that add to the same fragment) and none may write what it
//     reads; it may read at any time. What completes is ordered before what follows the WAIT or
//     WAIT_PHASE.
//   Two accesses to an element, one of them a write, that nothing orders are an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

struct Program {
  struct Argument {
    DType dtype = DType::kVoid;
    int64_t elements = 0;
    bool read = false;
    bool written = false;
    // Its contents outlive runs, so that a copy of it in another order may be kept.
    bool weight = false;
    // No kernel of its graph reads what this one stores there.
    bool result = false;
  };

  // Argument `copy` holds elements of argument `source`, a weight, in the order in which this
  // program reads them. `kernel` makes it: a kernel before lowering whose PARAM 0 is the copy and
  // PARAM 1 the source. A launch needs a copy that was made of the source's present contents.
  struct Packing {
    int32_t copy = 0;
    int32_t source = 0;
    FrozenGraph kernel;
  };

  std::string name;  // a C identifier
  std::shared_ptr<const Graph> graph;
  std::vector<uint32_t> order;
  std::vector<Argument> arguments;  // by PARAM slot, without holes
  std::vector<Packing> packings = {};
  int64_t iterations = 1;  // size of the kThread range, or at most so many workgroups; 1 if neither
  int64_t warp = 1;        // threads of a warp
  double flops = 0;        // arithmetic operations of the whole launch
  double bytes = 0;        // bytes of the arguments that it can touch, once each
  std::string moves = {};  // that made it of its kernel, as text: see engine/lowering/moves/move.h
};

}  // namespace telegrad
