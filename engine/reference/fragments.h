// Which elements of a matrix each thread of a matrix instruction's scope holds: facts of the
// instruction sets, stated once for every row of engine/ir/mma.def.
//
//   sm80 m16n8k16, 16-bit inputs: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
//     type". With group = lane / 4 and pair = lane % 4:
//       a[i]: row = group, + 8 for i in {2, 3, 6, 7}; column = 2 pair + i % 2, + 8 for i >= 4
//       b[i]: row = 2 pair + i % 2, + 8 for i >= 2; column = group
//       c[i]: row = group, + 8 for i >= 2; column = 2 pair + i % 2
//   sm90 m64nNk16: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix D. Warp w of
//     the four holds rows 16 w to 16 w + 15; within them it repeats the c of m16n8 every 8 columns.
//     a and b are row-major tiles in local memory, so no thread holds them.
//   amx: Intel SDM, TDPBF16PS. One thread holds everything. a and c are row-major. Row r of the
//     tile b holds the elements (2 r, n) and (2 r + 1, n) next to each other.
#pragma once

#include "engine/ir/op.h"

namespace telegrad::reference {

struct Element {
  int row;
  int column;
};

namespace internal {

inline Element PairOfM16N8(int lane, int i) {
  return {.row = lane / 4 + (i & 2 ? 8 : 0), .column = 2 * (lane % 4) + (i & 1)};
}

}  // namespace internal

// Element `i` of what thread `t` of the scope holds of a. Not for asynchronous rows.
inline Element FragmentA(const MmaInfo& mma, int t, int i) {
  if (mma.scope == Scope::kThread) return {.row = i / mma.k, .column = i % mma.k};
  const Element e = internal::PairOfM16N8(t, i);
  return {.row = e.row, .column = e.column + (i & 4 ? 8 : 0)};
}

// The same of b. Not for asynchronous rows.
inline Element FragmentB(const MmaInfo& mma, int t, int i) {
  if (mma.scope == Scope::kThread) {
    const int width = 2 * mma.n;
    return {.row = 2 * (i / width) + i % 2, .column = i % width / 2};
  }
  return {.row = 2 * (t % 4) + (i & 1) + (i & 2 ? 8 : 0), .column = t / 4};
}

// The same of c.
inline Element FragmentC(const MmaInfo& mma, int t, int i) {
  if (mma.scope == Scope::kThread) return {.row = i / mma.n, .column = i % mma.n};
  const Element e = internal::PairOfM16N8(t % 32, i & 3);
  return {.row = 16 * (t / 32) + e.row, .column = 8 * (i / 4) + e.column};
}

}  // namespace telegrad::reference
