// The proof that parallel iterations are independent: a look at the final linear program that
// trusts nothing of what made it. Two threads never store to the same element of an argument or of
// local memory, and none loads what another one stores. What is parallel are the iterations of
// kThread on a processor; workgroups, and threads of a workgroup, elsewhere. The latter may also
// touch the same element on both sides of a barrier; what runs beside a thread counts as another
// one until it is waited for.
//
// No op is atomic, so there is nothing to declare but one thing: where the last tile of a padded
// size begins earlier (Padding::moves_back), two iterations of a processor's loop compute some
// elements again. The index then has the place where the tile begins, max(-tile * number, tile -
// size), and two iterations that store to the same element are at the same position of the range
// that was split. Such pairs are counted as `repeated`. That both store the same value is shown
// where it is the same expression of the position (repeated_values.h). It is declared where
// replicated stores were simplified by what is known of each alone, or where a packed copy of a
// weight has elements of overlapping tiles twice: splitting a range makes it so, and differential
// tests check it. Only stores may be repeated, never an element that is also loaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/program.h"

namespace telegrad {

struct IndependenceReport {
  // Two INDEX nodes, of which the first is stored to, that may be the same element in two threads.
  struct Pair {
    UOp store, other;
    UOp range;  // that may differ
    bool other_stores = false;
  };
  std::vector<Pair> unproved;        // of arguments
  std::vector<Pair> unproved_local;  // of memory that a workgroup shares
  int64_t proved = 0;                // pairs of arguments
  int64_t repeated = 0;              // pairs of stores where the last tile begins earlier
  int64_t declared = 0;              // of these, from the first whose values are not shown equal on
  int64_t ordered = 0;               // pairs that a barrier lies between
  int64_t proved_local = 0;
};

// A step of the budget for each node, each pair and each form that is bounded: its error, before
// all is proved. With `local`, pairs of accesses to local memory are judged, too.
absl::StatusOr<IndependenceReport> ProveIndependence(const Program& program, Budget* budget,
                                                     bool local = false);

}  // namespace telegrad
