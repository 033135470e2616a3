// The elementwise operations in LLVM IR, exactly as ops.def defines them: no trap, no poison.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/ir/graph.h"
#include "engine/render/llvm_writer.h"
#include "engine/types/target.h"

namespace telegrad {

// One elementwise node with its operands rendered, each with `lanes` lanes.
struct LlvmAlu {
  LlvmWriter& out;
  UOp node;
  int64_t lanes;
  std::span<const std::string> x;
  bool vectors = true;    // whether the target has instructions for several lanes
  int64_t dot_bytes = 0;  // of the widest vectors whose bytes it multiplies
  std::string_view exp2;  // LLVM's intrinsic of one f32, where the target has the instruction
  // Of a CAST, the float that the target rounds to the nearest integer in one instruction, which
  // x[0] then is: see NearestOf.
  UOp nearest = {};

  DType from() const { return node.src(0).dtype(); }
  // The type of the operands (of the first, for WHERE), with the lanes.
  std::string type() const { return LlvmType(from(), lanes); }
  std::string to() const { return LlvmType(node.dtype(), lanes); }
  std::string suffix() const { return LlvmSuffix(from(), lanes); }
  std::string Int(int64_t value) const { return LlvmLiteral(from(), value, lanes); }
};

// Whether the elementwise node `u` has element types that there are instructions for. Floats under
// 32 bits are bits; f16 and bf16 are also converted, where the target says so, from what f32 holds
// exactly and to all others. EXP2 is one of f32 where the target has it.
bool LlvmAluComputes(UOp u, const Target& target);

// Appends the node's instructions and returns its value.
using LlvmAluPrinter = std::string (*)(const LlvmAlu&);

// Null where `op` is not elementwise or has no program level.
LlvmAluPrinter LlvmAluPrinterOf(Op op);

}  // namespace telegrad
