// Elements of a matrix that the threads of a matrix instruction hold, as the interpreter asks.
#pragma once

#include "engine/ir/fragment.h"
#include "engine/ir/op.h"

namespace telegrad::reference {

struct Element {
  int row;
  int column;
};

// Element `i` of what thread `t` of the scope holds of a. Not for asynchronous rows.
inline Element FragmentA(const MmaInfo& mma, int t, int i) {
  const FragmentRow& f = *FindFragment(mma.unit, 'a');
  return {.row = static_cast<int>(f.Along('m', t, i)),
          .column = static_cast<int>(f.Along('k', t, i))};
}

// The same of b. Not for asynchronous rows.
inline Element FragmentB(const MmaInfo& mma, int t, int i) {
  const FragmentRow& f = *FindFragment(mma.unit, 'b');
  return {.row = static_cast<int>(f.Along('k', t, i)),
          .column = static_cast<int>(f.Along('n', t, i))};
}

// The same of c.
inline Element FragmentC(const MmaInfo& mma, int t, int i) {
  const FragmentRow& f = *FindFragment(mma.unit, 'c');
  return {.row = static_cast<int>(f.Along('m', t, i)),
          .column = static_cast<int>(f.Along('n', t, i))};
}

}  // namespace telegrad::reference
