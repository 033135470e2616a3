// Which elements of a matrix each thread of a matrix instruction's scope holds: facts of the
// instruction sets, stated once for every row of engine/ir/mma.def.
//
//   sm80 m16n8k16, 16-bit inputs: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
//     type". With group = lane / 4 and pair = lane % 4:
//       a[i]: row = group, + 8 for i in {2, 3, 6, 7}; column = 2 pair + i % 2, + 8 for i >= 4
//       b[i]: row = 2 pair + i % 2, + 8 for i >= 2; column = group
//       c[i]: row = group, + 8 for i >= 2; column = 2 pair + i % 2
//   sm80 m16n16k16: two of these with the same a; elements 4 and on of b and c are the second's,
//   whose
//     columns are 8 to 15.
//   sm90 m64nNk16: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix D. Warp w of
//     the four holds rows 16 w to 16 w + 15; within them it repeats the c of m16n8 every 8 columns.
//     a and b are row-major tiles in local memory, so no thread holds them.
//   mfma m16n16k16: AMD Instinct MI300 ISA, "Dense matrix multiplication instructions". With
//     group = lane / 16:
//       a[i]: row = lane % 16, column = 4 group + i        b[i]: the same, rows and columns swapped
//       c[i]: row = 4 group + i, column = lane % 16
//   rdna3 m16n16k16: AMD RDNA 3 ISA, "Wave Matrix Multiply Accumulate". Both halves of the wave
//   hold
//     all of a and b: a[i] is row lane % 16, column i; b[i] is row i, column lane % 16.
//       c[i]: row = 2 i + lane / 16, column = lane % 16
//   rdna4 m16n16k16: AMD RDNA 4 ISA, the same. With group = lane / 16:
//       a[i]: row = lane % 16, column = 8 group + i        b[i]: the same, rows and columns swapped
//       c[i]: row = 8 group + i, column = lane % 16
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

// Of a matrix of 16 columns (or rows) whose other dimension lanes walk, what lane 16 g + l and its
// i-th element hold: l, and this.
inline int AlongK(const MmaInfo& mma, int lane, int i) {
  switch (mma.unit) {
    case MatrixUnit::kMfma:
      return 4 * (lane / 16) + i;
    case MatrixUnit::kRdna4:
      return 8 * (lane / 16) + i;
    default:
      return i;
  }
}

inline bool IsAmd(const MmaInfo& mma) {
  return mma.unit == MatrixUnit::kMfma || mma.unit == MatrixUnit::kRdna3 ||
         mma.unit == MatrixUnit::kRdna4;
}

}  // namespace internal

// Element `i` of what thread `t` of the scope holds of a. Not for asynchronous rows.
inline Element FragmentA(const MmaInfo& mma, int t, int i) {
  if (internal::IsAmd(mma)) return {.row = t % 16, .column = internal::AlongK(mma, t, i)};
  if (mma.scope == Scope::kThread) return {.row = i / mma.k, .column = i % mma.k};
  const Element e = internal::PairOfM16N8(t, i);
  return {.row = e.row, .column = e.column + (i & 4 ? 8 : 0)};
}

// The same of b. Not for asynchronous rows.
inline Element FragmentB(const MmaInfo& mma, int t, int i) {
  if (internal::IsAmd(mma)) return {.row = internal::AlongK(mma, t, i), .column = t % 16};
  if (mma.scope == Scope::kThread) {
    const int width = 2 * mma.n;
    return {.row = 2 * (i / width) + i % 2, .column = i % width / 2};
  }
  return {.row = 2 * (t % 4) + (i & 1) + (i & 2 ? 8 : 0), .column = t / 4 + 8 * (i / 4)};
}

// The same of c.
inline Element FragmentC(const MmaInfo& mma, int t, int i) {
  if (mma.unit == MatrixUnit::kRdna3) return {.row = 2 * i + t / 16, .column = t % 16};
  if (internal::IsAmd(mma)) return {.row = internal::AlongK(mma, t, i), .column = t % 16};
  if (mma.scope == Scope::kThread) return {.row = i / mma.n, .column = i % mma.n};
  const Element e = internal::PairOfM16N8(t % 32, i & 3);
  return {.row = 16 * (t / 32) + e.row, .column = 8 * (i / 4) + e.column};
}

}  // namespace telegrad::reference
