// The elementwise operations in languages like C, exactly as ops.def defines them: nothing is
// undefined, and nothing is left to the compiler's choice.
#pragma once

#include <span>
#include <string>

#include "engine/ir/graph.h"
#include "engine/render/c_writer.h"
#include "engine/types/target.h"

namespace telegrad {

// One elementwise node with its operands rendered, each with `lanes` lanes.
struct CAlu {
  CWriter& out;
  UOp node;
  int64_t lanes;
  std::span<const std::string> x;

  DType from() const { return node.src(0).dtype(); }
  DType to() const { return node.dtype(); }
  std::string Int(int64_t value) const { return CLiteral(from(), value, lanes); }
};

// Whether the target computes on the element types of the elementwise node. Of what it does not, it
// moves the bits.
bool CAluComputes(UOp u, const Target& target);

// Appends the node's statements and returns its value.
using CAluPrinter = std::string (*)(const CAlu&);

// Null where `op` is not elementwise or has no program level.
CAluPrinter CAluPrinterOf(Op op);

}  // namespace telegrad
