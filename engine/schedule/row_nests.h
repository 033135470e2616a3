// The nests of a kernel that takes a softmax of one row of scores to weight a sum.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

// A nest that fills private memory along one range, inside of loops that all nests share.
struct RowNest {
  UOp store, range;
  UOp buffer() const {
    UOp u = store.src(0).src(0);
    return u.is(Op::kAfter) ? u.src(0) : u;
  }
  // Whether `u` loads what it has stored, at a range.
  bool Stores(UOp u, UOp range) const;
};

// Scores are stored, then weights, and the last nest adds up weighted values and stores what comes
// of them:
//
//   A[k] = score
//   B[k] = f(exp2((e(A[k]) - g(m)) c)), m = max over k of e(A[k])
//   y[c] = h(sum over k of B[k] v[k, c])
//
// where f multiplies or divides by what is the same for all keys, and g(m) is m, or a constant
// where m is not finite. Nothing else reads the scores or the weights.
struct RowNests {
  std::vector<UOp> shared;  // loops around each nest
  int64_t rows = 1;         // iterations of all of these
  RowNest scores, weights;
  UOp root, channel;            // the STORE of the results, and the loop around it
  UOp weighted, value;          // the REDUCE over k, and v
  UOp exponential, difference;  // of a weight: EXP2, and e - g(m)
  UOp maximum, sum;             // REDUCEs; no sum: f has none

  int64_t keys() const { return scores.range.src(0).const_word(); }
  int64_t channels() const { return channel.src(0).const_word(); }
};

// nullopt where the kernel, which is as the schedule makes it, has other nests.
std::optional<RowNests> FindRowNests(const FrozenGraph& kernel);

// The nodes that a value is computed from in its own nest: not those of the nests that it waits
// for.
std::vector<UOp> NodesOf(UOp value);

}  // namespace telegrad
