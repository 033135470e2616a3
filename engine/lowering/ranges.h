// What many passes ask of a RANGE, of an address, and of a set of ranges.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ir/graph.h"

namespace telegrad {

// The iterations of a RANGE; where its end is computed, the most that it may have.
inline int64_t SizeOf(UOp range) { return std::max<int64_t>(range.src(0).vmax(), 0); }

inline bool IsType(UOp range, AxisType type) { return range.axis_type() == type; }

// Whether its iterations are threads of one workgroup.
inline bool IsRangeOfThreads(UOp u) {
  return u.is(Op::kRange) && (IsType(u, AxisType::kLocal) || IsType(u, AxisType::kWarp));
}

// What an integer is a cast of that keeps every value.
inline UOp WithoutCasts(UOp u) {
  while (u.is(Op::kCast) && IsSigned(u.dtype()) && IsSigned(u.src(0).dtype()) &&
         Info(u.dtype()).bits >= Info(u.src(0).dtype()).bits) {
    u = u.src(0);
  }
  return u;
}

// A number that no RANGE below `root` has.
inline int64_t NextRangeId(UOp root) {
  int64_t next = 0;
  for (uint32_t id : PostOrder(root)) {
    const UOp u = root.graph()->at(id);
    if (u.is(Op::kRange)) next = std::max(next, u.range_id() + 1);
  }
  return next;
}

// The PARAM or BUFFER that an INDEX is into.
inline UOp Memory(UOp address) {
  UOp buffer = address.src(0);
  while (buffer.is(Op::kAfter)) buffer = buffer.src(0);
  return buffer;
}

// A set of ranges is a bit set in the order of Dependence::ranges.
using RangeSet = uint64_t;

inline RangeSet Bit(int range) { return RangeSet{1} << range; }
inline bool Has(RangeSet set, int range) { return range >= 0 && (set >> range & 1) != 0; }

}  // namespace telegrad
