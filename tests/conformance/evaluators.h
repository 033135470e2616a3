// The two evaluators of elementwise ops, the interpreter's lanes and constant folding, as one
// function on elements.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "engine/base/strings.h"
#include "engine/ir/scalar.h"
#include "engine/reference/lane.h"
#include "engine/rules/fold.h"

namespace telegrad::testing {

using reference::Lane;

inline uint64_t Mask(DType dtype) { return ~uint64_t{0} >> (64 - Info(dtype).bits); }

// All NaNs as one: which one an operation gives is nobody's promise.
inline Lane OneNan(DType dtype, Lane x) {
  if (!IsFloat(dtype)) return x;
  const int64_t word = ScalarFromMemory(dtype, static_cast<int64_t>(x));
  if (!std::isnan(std::bit_cast<double>(word))) return x;
  const auto nan = std::bit_cast<int64_t>(std::numeric_limits<double>::quiet_NaN());
  return static_cast<Lane>(ScalarToMemory(dtype, nan)) & Mask(dtype);
}

enum Evaluator { kLanes, kFolding };

inline Lane Apply(Evaluator evaluator, Op op, DType in, DType out, Lane x, Lane y = 0) {
  if (evaluator == kLanes) {
    return OneNan(out, reference::FindLaneFn(op, in, out)(x, y, 0));
  }
  const int64_t words[] = {ScalarFromMemory(in, static_cast<int64_t>(x)),
                           ScalarFromMemory(in, static_cast<int64_t>(y))};
  const DType types[] = {in, in};
  const auto n = static_cast<size_t>(Info(op).min_src);
  const std::optional<int64_t> word = Fold(op, out, std::span(types, n), std::span(words, n));
  if (op == Op::kBitcast && IsFloat(out) && !word) {  // a CONST cannot tell one NaN from another
    const auto nan = std::bit_cast<int64_t>(std::numeric_limits<double>::quiet_NaN());
    return static_cast<Lane>(ScalarToMemory(out, nan)) & Mask(out);
  }
  EXPECT_TRUE(word) << std::string(Name(op)) << " does not fold";
  return OneNan(out, static_cast<Lane>(ScalarToMemory(out, word.value_or(0))) & Mask(out));
}

inline constexpr Evaluator kBoth[] = {kLanes, kFolding};
inline constexpr DType kNarrowFloats[] = {DType::kFloat16,        DType::kBFloat16,
                                          DType::kFloat8E4M3,     DType::kFloat8E5M2,
                                          DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2Fnuz};
inline constexpr DType kInts[] = {DType::kInt8,  DType::kInt16,  DType::kInt32,  DType::kInt64,
                                  DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};

}  // namespace telegrad::testing
