// What is well formed at each level, beyond the rules that Graph::Make checks for every single
// node.
//
// Errors are INVALID_ARGUMENT, "node 17 (store): ...": the post-order position (for a program, the
// position in its order), the op, what was wrong and what was expected.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"

namespace telegrad {

// Tensor level, what a client may send:
//   The root is a SINK of STOREs. A STORE is a source of SINK and AFTER only.
//   STORE's src 0 is a view (RESHAPE, PERMUTE, FLIP, SHRINK) of PARAM or of AFTER.
//   AFTER's src 0 is a PARAM, its other sources are STOREs to that slot.
//   One slot has one dtype and one shape.
//   Of two STOREs to a slot, one depends on the other (by way of an AFTER), so their order is
//   defined. A STORE to a packed type writes a whole param.
//   Symbolic dims depend on constants and variables without a source only.
//   ARG stands only in bodies of CALL and LOOP, and has the type, shape and device of the value
//   that it stands for; a body has no PARAM, AFTER or effect.
// Kernel level, one kernel:
//   The root is a SINK of STOREs and ENDs. LOAD and STORE address an INDEX, INDEX a flat PARAM or
//   BUFFER; these are not used as values. REDUCE reduces over ranges of type reduce, unroll,
//   upcast or vector. Range ids are unique, and every range is closed by an END or REDUCE. Several
//   may be of type thread; a program has at most one.
// Program level: each node is allowed there; the rest is a matter of the order, see
// Verify(Program).
//
// `numbers[id]` is what errors call the node `id` instead of its position, for a graph that came
// from somewhere with numbers of its own.
//
// Linear in the graph except for the order of STOREs and the bodies of functions, whose searches
// spend the budget's steps (without one, those of a budget of its own).
absl::Status Verify(UOp root, Level level, std::span<const uint32_t> numbers = {},
                    Budget* budget = nullptr);

// Whether a program may have that name: an identifier of C.
bool IsIdentifier(std::string_view name);

// All of program.h: sources appear before their users and in a loop that is still open (CONST,
// PARAM and IOTA hold everywhere), loops nest and end, the thread range is first and outermost,
// buffers are only indexed, addresses are only loaded and stored, values are scalars or vectors,
// and the header (name, arguments, iterations) agrees with the nodes.
absl::Status Verify(const Program& program);

}  // namespace telegrad
