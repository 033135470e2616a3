// The text form of graphs and programs, for people, golden files and telegrad-opt. One node per
// line, in canonical post-order, so equal structure prints as equal text:
//
//   %0 = param f32 [2, 3] slot=0
//   %1 = const f32 0.5
//   %2 = mul f32 [2, 3] %0 %1
//   %3 = reduce f32 [1, 3] %2 kind=add axes=[0]
//   %4 = param f32 [1, 3] slot=1
//   %5 = store %4 %3
//   %6 = sink %5
//
// A line is `%label = op`, then the type and the shape of the value (no shape: a scalar; neither:
// an effect), the sources, and what else the op's argument says. Dims that the shape already tells
// (param, iota, reshape, expand, buffer) are not repeated. Floats print as the shortest text that
// reads back as the same bits. `#` starts a comment; blank lines are ignored.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"

namespace telegrad {

// The nodes that `root` depends on, labelled by their post-order position.
std::string Print(UOp root);
// The line of one node, with node ids as labels and without a newline.
std::string PrintNode(UOp u);
// A header line, then the linear order, labelled by position:
//   program add iterations=16 flops=16 bytes=192 arguments=[f32 16 read, f32 16 write, f32 16 read
//   write]
std::string Print(const Program& program);

// Adds the nodes of `text` to `graph` and returns the one of the last line. Labels may be any
// distinct numbers. INVALID_ARGUMENT names the line and what was expected.
absl::StatusOr<UOp> Parse(std::string_view text, Graph* graph);
absl::StatusOr<Program> ParseProgram(std::string_view text);

}  // namespace telegrad
