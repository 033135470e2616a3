// Sums of products of integers that are bytes, perhaps less a zero point, as those of quantized
// networks. No processor has a fast product of i32, so they are computed otherwise, and exactly:
// by an instruction that adds products of bytes (dot_product.h), where the target has it, or in
// f32, which has all integers up to 2^24, in as many parts as that takes.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/access.h"

namespace telegrad {

// Of an axis whose bytes lie in words of four: of three, as of the channels of a picture, a quarter
// of each word is empty.
inline constexpr int64_t kLeastDotTerms = 3;

// The sums of products in a tensor graph that are worth an instruction for bytes, as nodes by id.
struct SumsOfBytes {
  absl::flat_hash_set<uint32_t> sums;  // REDUCEs
  // What they make of bytes before these are multiplied is computed where they are multiplied, so
  // that bytes are what is stored.
  absl::flat_hash_set<uint32_t> operands;
};
SumsOfBytes FindSumsOfBytes(UOp sink, Budget* budget);

// The tensor graph with sums of products of small i32 as sums of f32; without those of bytes if
// `dots`.
absl::StatusOr<FrozenGraph> AddSmallProductsInFloat(FrozenGraph graph, bool dots, Budget* budget);

// Whether the REDUCE is one of them, and the integers are so small that an i32 holds their sum.
bool AddsBytes(UOp reduce);

// The axes of more than one element that a REDUCE adds up, as ranges of LoopAccess are numbered.
RangeSet SummedAxes(UOp reduce);

// Whether f32 has each sum of some of the products of i32 that the REDUCE adds up.
bool IsExactInFloat(UOp reduce);

// The terms of a product of two i32 that f32 adds up exactly; 0: none.
int64_t ExactTerms(UOp x, UOp y);

}  // namespace telegrad
