// What the threads of a workgroup copy into local memory for a softmax over blocks of keys
// (workgroup_online.h), and over which blocks they go.
#pragma once

#include <optional>
#include <vector>

#include "engine/lowering/online_match.h"
#include "engine/lowering/tile_layout.h"
#include "engine/lowering/workgroup_matmul.h"
#include "engine/lowering/workgroup_stage.h"

namespace telegrad {

struct OperandPlan {
  const CoupledSums& sums;
  const std::optional<RowProduct>& product;  // of the scores; nullopt: they are not staged
  UOp value;                                 // the LOAD that is weighted; invalid: it is not staged
  UOp channel;                               // the range of the sums beside their rows
  const std::optional<TileInstruction>& instruction;
  const std::vector<UOp>& threads;  // outermost first
  int64_t block;                    // keys
  int64_t channels;                 // in whole tiles
  int64_t terms;                    // of the scores: a multiple of them is staged
  int64_t other_bytes;              // of local memory that is needed besides
};

struct StagedOperands {
  UOp blocks;  // the loop over them
  std::optional<Panel> query = {}, key = {}, value = {};
  int64_t bytes = 0;  // of local memory
};

// Queries are copied once, keys and values for each block: asynchronously, as a ring, where two
// such workgroups have room. *next_slot becomes the number of a BUFFER that is free.
StagedOperands StageOperands(Rewriter& b, const Target& target, const OperandPlan& plan,
                             int64_t* next_range, int64_t* next_slot);

// Makes what copies them.
void FillOperands(Rewriter& b, StagedOperands* operands, int64_t* next_range);

}  // namespace telegrad
