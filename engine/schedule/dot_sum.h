// Sums of products of bytes in a kernel: what their factors are, and in which order these are read.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/schedule/range_facts.h"

namespace telegrad {

inline constexpr int kDotBytes = 4;  // of a word

// Ranges of which a factor depends on the sum `unit` + step * `other` only, as the rows and the
// window of a convolution are; `other` is invalid where it is `unit` alone.
struct DotWalk {
  UOp unit, other;
  int64_t step = 0;
  int64_t size() const {
    return RangeFacts::Size(unit) + (other.valid() ? step * (RangeFacts::Size(other) - 1) : 0);
  }
};

// A factor: bytes that are loaded where a gate holds, else their zero point, and what is added.
struct DotFactor {
  UOp load, gate;  // the gate is invalid where there is none
  UOp added;       // i32, the zero point's negative; invalid: 0
  // Of `added`, where the factor's gate is one of theirs, too: they lie in memory in any case.
  std::vector<UOp> gated;
  // Nothing writes it, so its words are an argument that is computed once for many runs.
  bool weight = false;
  bool stored =
      false;  // its words, by a kernel of their own; else they are made where they are read
  std::vector<UOp> ranges;     // that the gate and what is read depend on
  std::vector<DotWalk> walks;  // the same in the order of its words, the farthest steps first

  bool is_signed() const { return load.dtype() == DType::kInt8; }
  bool Reads(UOp range) const { return std::ranges::find(ranges, range) != ranges.end(); }
};

struct DotSum {
  std::vector<UOp> loops;  // around the sum
  UOp reduce, word;        // the range whose bytes lie in words
  std::array<DotFactor, 2> factors;
  int64_t terms = 1;

  int64_t words() const { return (RangeFacts::Size(word) + kDotBytes - 1) / kDotBytes; }
  int64_t SizeOf(const DotWalk& walk) const { return walk.unit == word ? words() : walk.size(); }
  int64_t WordsOf(const DotFactor& factor) const;
};

// The REDUCE of a kernel, in these loops, as such a sum; nullopt where it is none, or of fewer than
// `least` products, which are not worth it.
// `is_weight`: whether no kernel writes an argument.
std::optional<DotSum> FindDotSum(UOp reduce, const std::vector<UOp>& loops, const RangeFacts& facts,
                                 double least, const std::function<bool(int argument)>& is_weight);

}  // namespace telegrad
